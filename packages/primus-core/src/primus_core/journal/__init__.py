"""What a run writes down while it goes: events, metrics, and the summary of both."""
