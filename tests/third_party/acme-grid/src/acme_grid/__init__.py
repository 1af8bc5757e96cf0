"""A batch system, and how Primus runs on it."""
