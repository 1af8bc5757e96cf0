"""Prepares documents as token ids: part by part, resumable, shared between nodes, and joined at the end."""
