"""Checks of the host: its settings, clock, disk and kernel log."""
