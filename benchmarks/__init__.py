"""Benchmarks of Primus against named peers."""
