"""Collectives between ranks: sizes, traffic, values that reveal a wrong result, the worker and its report."""
