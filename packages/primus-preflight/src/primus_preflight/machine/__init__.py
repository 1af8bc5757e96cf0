"""Reads of a machine what detection does not need: the kernel's files, PCI, adapters, and what is connected to what."""
