"""What a run records: its record, events and metrics, and the summary of both."""

__all__ = ["RECORD"]

RECORD = "metadata.json"
"""The file of a run's record. It stands here for a dry run, which shows one and need not load what reads it."""
