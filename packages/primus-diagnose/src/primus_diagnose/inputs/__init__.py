"""Finds what a failure left behind: logs, and records of other forms, which are turned into lines."""
