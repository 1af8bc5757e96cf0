"""Traces of profilers, read as streams: what each device did in each moment, by kind of operation."""
