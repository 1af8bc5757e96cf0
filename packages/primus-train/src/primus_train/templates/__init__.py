"""Experiments to begin with: one file a model and backend, with what each GPU wants otherwise."""
