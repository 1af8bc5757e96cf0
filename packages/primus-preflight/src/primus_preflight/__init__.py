"""Is this cluster fit to train, and if not, which node and why? Nothing is imported here."""
