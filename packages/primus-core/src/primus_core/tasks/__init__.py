"""The tasks that the kernel brings."""
