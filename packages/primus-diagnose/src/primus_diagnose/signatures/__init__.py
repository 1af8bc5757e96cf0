"""Failure signatures: what a line of a log means. They are data; packages and users add theirs."""
