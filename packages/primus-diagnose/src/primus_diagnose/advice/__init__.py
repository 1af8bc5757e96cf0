"""What to do, in the run's own numbers: which setting, from what to what, and what it costs."""
