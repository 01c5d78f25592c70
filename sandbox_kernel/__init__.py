"""Sandboxed Python: a Jupyter kernel whose cells run in a process confined by the Linux kernel."""

__version__ = "0.1.0"
