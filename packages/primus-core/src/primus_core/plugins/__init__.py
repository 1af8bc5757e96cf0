"""Finds plugins and loads the one that is asked for: the shapes that they have, and a person's own files."""
