"""The wall: turns a plan into the confined process. Trusted; runs before any cell, and decides nothing.

Read `lockdown` first: it has the order of the steps; each of the others is one layer.
"""
