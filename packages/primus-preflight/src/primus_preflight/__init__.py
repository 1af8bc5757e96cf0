"""Check whether the nodes are fit to train. Nothing is imported here."""
