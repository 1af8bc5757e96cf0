"""Storage: options and plan, files and their check, the worker."""
