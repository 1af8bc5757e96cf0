"""Plugins of another team."""
