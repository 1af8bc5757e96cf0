"""MaxText's own configuration files as experiments: a flat list of its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from primus_maxtext.schema import load, shipped

__all__ = ["adopt"]

_MARKS = frozenset(("base_config", "model_name", "per_device_batch_size", "max_target_length", "base_emb_dim"))
"""At least one of these is in every such file, and in no other framework's."""
_OURS = ("run_name", "base_config", "hardware", "base_output_directory", "override_model_config")
"""What Primus decides."""
_BASE = "base.yml"


def adopt(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The experiment that a file of MaxText's says, or None if it is not one."""
    options = load(list(shipped().values())[-1]).options
    known = [name for name in document if name in options]
    if not _MARKS & document.keys() or len(known) * 2 < len(document):
        return None
    kept = {name: value for name, value in document.items() if name not in _OURS}
    if document.get("base_config", _BASE) != _BASE:
        kept["base_config"] = document["base_config"]  # refused, with what to do
    name = "".join(char if char.isalnum() or char in "._-" else "_" for char in str(document.get("run_name") or ""))
    return {
        "work_group": "maxtext",
        "user_name": "maxtext",
        "exp_name": name.strip("._-")[:80] or "maxtext",
        "modules": {"pre_trainer": {"framework": "maxtext", "overrides": kept}},
    }
