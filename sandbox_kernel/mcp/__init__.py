"""A server for the Model Context Protocol: a sandbox as tools that a language model can call.

`sessions` keeps the sandboxes apart, `arguments` says what a tool takes, `tools` does it; none of the three knows the
protocol. `server` speaks it, by the official SDK.
"""
