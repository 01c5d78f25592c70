"""How a command ends early."""

from __future__ import annotations


class Stop(Exception):
    """A command cannot go on; the message is the sentence that the user reads."""
