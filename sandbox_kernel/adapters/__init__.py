"""The sandbox for frameworks of others, one module for each; it is imported by name and needs that framework."""
