"""Memory bandwidth: options and plan, the work and its check, the worker."""
