"""The model catalogue: what a model's architecture is, once for all frameworks, and what follows from it."""
