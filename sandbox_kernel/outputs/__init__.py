"""The output gate: what the worker shows becomes a message only here."""
