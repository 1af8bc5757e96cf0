"""Experiment files: read with the place of every key, extended, interpolated, overridden, validated."""
