"""Proofs of the wall: what must fail is tried before the first cell runs. Trusted, and independent of `confine`."""
