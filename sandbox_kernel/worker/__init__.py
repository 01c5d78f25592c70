"""The UNTRUSTED side: the stock ``IPythonKernel`` behind our channel instead of ZeroMQ.

It runs in the confined process, next to the cells, so nothing here protects anything: a cell can change all
of it. What this package owes the front is order and completeness towards cooperative code: every request is
answered once, whatever a cell does to signals, threads, forks and streams.

Standard library, ipykernel and ``channel.framing`` only, so that any environment with ipykernel can be a
worker's.
"""
