"""Attention: its options and plan, the problem, the check of results and gradients, the worker and its report."""
