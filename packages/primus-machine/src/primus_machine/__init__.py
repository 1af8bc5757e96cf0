"""One machine and its files: what it is, whose a file is, what in a text is a secret. It knows nothing of runs."""
