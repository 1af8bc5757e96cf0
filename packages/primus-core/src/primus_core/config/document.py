"""A configuration file's data with the place of each value, under the name by which backends import it."""

from primus_machine.files.document import ONE_KIND, REFUSED, Document, Path, at, both_kinds, clash, deep_merge, dotted

__all__ = ["ONE_KIND", "REFUSED", "Document", "Path", "at", "both_kinds", "clash", "deep_merge", "dotted"]
