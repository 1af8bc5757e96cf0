"""Raises on import, as a plugin with a missing library does."""

raise RuntimeError("libcrumble.so.7 is not here")
