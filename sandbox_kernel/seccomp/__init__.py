"""System-call filtering: the table of verdicts, the BPF program made of it, and answers to the calls that notify."""
