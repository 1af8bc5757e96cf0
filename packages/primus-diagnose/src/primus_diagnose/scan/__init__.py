"""Reads logs of any size: one search for all signatures at once, and a close look at the few lines that it finds."""
