"""Much work at a time: each piece in a process of its own, here or on a cluster.

A piece of work is a function of this package, named ``module:function``, that takes plain values and gives plain
values. What it does may hang, crash or be killed; that costs this piece and nothing else.
"""
