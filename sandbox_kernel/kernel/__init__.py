"""The front: Jupyter in, session out."""
