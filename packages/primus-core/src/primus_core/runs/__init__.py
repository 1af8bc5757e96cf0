"""Runs on disk: their directories, records, snapshots, lists and differences."""
