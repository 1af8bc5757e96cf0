"""The task `verify`: train a small copy of an experiment on one rank and in parallel layouts, and compare them."""
