"""A report as JSON: each figure with its title, value, unit, source, and where it has no value, the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from primus_machine.files import plain_json
from primus_report.figures.steps import Steps

__all__ = ["KEY", "as_json"]

KEY = "primus_report"
"""The schema's version stands under it, and by it a file is known as one of ours."""
_SCHEMA = 1


def as_json(report: Any) -> str:
    """The report, without the lines of its metrics."""
    return plain_json.dumps({KEY: _SCHEMA, **_plain(report)}, indent=1)


def _plain(found: Any) -> Any:
    if is_dataclass(found):
        kept = ((field.name, getattr(found, field.name)) for field in fields(found))
        return {name: _plain(one) for name, one in kept if not isinstance(one, Steps)}
    if isinstance(found, Mapping):
        return {key: _plain(one) for key, one in found.items()}
    return [_plain(one) for one in found] if isinstance(found, list | tuple) else found
