"""The words that front and worker share: how messages are cut into packets, and which messages there are.

``framing`` uses the standard library only, because both sides import it; ``schema`` is for the front.
"""
