"""Watches a run beside it: names the rank that hangs, and the line of code that it is at."""

__all__: list[str] = []
