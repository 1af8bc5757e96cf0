"""Starts what a plan says, watches it, and says how it ended."""
