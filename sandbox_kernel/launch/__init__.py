"""From the front to a zygote that forks workers: starting it, serving in it, talking to it. Trusted."""
