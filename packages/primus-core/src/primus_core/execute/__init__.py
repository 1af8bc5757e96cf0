"""Carries out a plan: the run directory is made, steps run, attempts are counted, the end is reported."""
