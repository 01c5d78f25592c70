"""The wall: everything that confines the worker. Trusted; runs before any cell."""
