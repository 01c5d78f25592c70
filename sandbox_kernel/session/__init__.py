"""The trusted core: one worker's life, without any Jupyter in it."""
