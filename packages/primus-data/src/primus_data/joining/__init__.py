"""Prepared data put together and taken apart: merged, split, and blended."""
