"""Runs on disk: their directories, snapshots, lists, differences and replays."""
