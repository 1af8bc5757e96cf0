"""What Primus asks a scheduler, and the schedulers that are installed."""
