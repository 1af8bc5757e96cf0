"""Reads the machine: GPUs, network, versions; captures of it."""
