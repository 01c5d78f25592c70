"""How a command ends early."""

from __future__ import annotations


class Stop(Exception):
    """A command cannot go on; the message is the sentence that the user reads.

    Attributes:
        status: the exit status.
    """

    status = 1


class Usage(Stop):
    """What was asked for makes no sense, and nothing was done."""

    status = 2
