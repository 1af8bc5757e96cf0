"""The places that a task can run in."""
