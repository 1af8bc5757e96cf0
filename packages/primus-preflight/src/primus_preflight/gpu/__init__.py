"""Checks of the GPUs: what the driver says of them, and what they do under load."""
