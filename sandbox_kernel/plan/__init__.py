"""The plan: everything about one sandbox, decided from a policy and printable before anything is applied. Trusted."""
