"""The labels that every container of ours has: `primus container --clean` goes by them."""

__all__ = ["LABEL", "LABEL_DIRECTORY", "LABEL_HOST"]

LABEL, LABEL_HOST, LABEL_DIRECTORY = "primus.run", "primus.host", "primus.directory"
"""The run's id, where it was started, the run directory."""
