"""Settings of AMD's fork of Megatron, by the table in `fork_settings.json`: renamed, ignored with a note, or refused.

What changes the result and cannot be done here is refused. What only tunes is accepted, and a note tells of it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Container, Mapping
from pathlib import Path as FilePath
from typing import Any

from primus_core.config.document import Document, Path
from primus_megatron import hybrid
from primus_train.migration import fix_of
from primus_train.released import is_released

__all__ = ["asks_nothing", "table", "translate"]

Row = Mapping[str, Any]


@functools.cache
def table() -> Mapping[str, Row]:
    """Return the rows by name. A row has `to` (another name), `ignored` (why), or `gone` (why, or why by value) with
    `instead`.

    Values in `unless` ask for nothing.
    """
    rows = json.loads((FilePath(__file__).parent / "fork_settings.json").read_text(encoding="utf-8"))
    return {name: row for name, row in rows.items() if not name.startswith("#")}


def asks_nothing(name: str, value: Any) -> bool:
    """Check whether a setting of the fork leaves everything as it is here."""
    row = table().get(name, {})
    return ("to" in row and not value) or any(_is(value, one) for one in row.get("unless", ()))


def _is(value: Any, other: Any) -> bool:
    """0 and 1 stand for false and true, as in all settings."""
    return bool(value == other)


def translate(document: Document, known: Container[str]) -> tuple[Document, tuple[str, ...]]:
    """Return `document` without the fork's settings, and the notes on those that have no effect here.

    `known` are Primus's settings and those of the version of Megatron at hand, which keep their own meaning.

    Raises:
        ConfigError: one or more of them change the result, and cannot be done here.
    """
    document, about_layers = hybrid.translate(document)
    work = _Translation(_with_sinks(document), known)
    for name, value in work.document.data.items():
        work.take(name, value)
    work.refuse()
    return Document(work.data, work.marks, document.files), (*about_layers, *work.notes())


_SINKS = ("use_sink_attention", "sink_sliding_window", "sink_window_even_layers_only")


def _with_sinks(document: Document) -> Document:
    """Say the attention sinks of the fork in Megatron's words. The fork has them in its own attention only."""
    data = {name: value for name, value in document.data.items() if name not in _SINKS}
    asked = document.data.get(_SINKS[0]) and data.get("enable_primus_turbo") and data.get("use_turbo_attention")
    if not asked or data.get("context_parallel_size", 1) > 1:
        return document._replace(data=data)
    found: dict[str, Any] = {"softmax_type": "learnable"}
    if window := document.data.get(_SINKS[1]):
        found["window_size"] = f"{window},0"
        if document.data.get(_SINKS[2], True):
            found["window_attn_skip_freq"] = 2
    marks: dict[Path, str] = {(name,): document.where((_SINKS[0],)) for name in found}
    return Document({**data, **found}, {**document.marks, **marks}, document.files)


class _Translation:
    """One pass over the settings."""

    def __init__(self, document: Document, known: Container[str]) -> None:
        self.document, self.known = document, known
        self.data: dict[str, Any] = {}
        self.marks = dict(document.marks)
        self.ignored: dict[str, list[str]] = {}
        self.gone: dict[str, Row] = {}

    def take(self, name: str, value: Any) -> None:
        """Keep the setting, rename it, or put it aside."""
        row = None if name in self.known else table().get(name)
        if row is None and is_released(self.document.where((name,))) and name not in self.known:
            self.ignored.setdefault("this version of Megatron does not have it", []).append(name)
        elif row is None:
            if name not in self.data or value is not None:  # not over what stands in for another one
                self.data[name] = value
        elif asks_nothing(name, value):
            return
        elif "to" in row:
            self.data[row["to"]] = value
            self.marks[(row["to"],)] = self.document.where((name,))
        elif "ignored" in row:
            self.ignored.setdefault(row["ignored"], []).append(name)
            self.set_instead(name, row.get("sets", {}))
        else:
            self.gone[name] = row

    def set_instead(self, name: str, settings: Mapping[str, Any]) -> None:
        """Set what stands in for an ignored setting, unless the experiment does."""
        for other, value in settings.items():
            if self.document.data.get(other) is None:
                self.data[other] = value
                self.marks[(other,)] = self.document.where((name,))

    def notes(self) -> tuple[str, ...]:
        """Return one note for each reason."""
        return tuple(f"ignored: {', '.join(names)}: {why}" for why, names in self.ignored.items())

    def refuse(self) -> None:
        """Raise one error for all that cannot be done."""
        if not self.gone:
            return
        first, row = next(iter(self.gone.items()))
        shown = ", ".join(f"{name}: {_short(self.document.data[name])}" for name in self.gone)
        what = f"Primus cannot do '{shown}' of AMD's fork of Megatron"
        why = row["gone"] if isinstance(row["gone"], str) else _of_value(row["gone"], self.document.data[first])
        raise hybrid.refusal(what, self.document.where((first,)), why=why, fix=fix_of(row))


def _of_value(reasons: Mapping[str, str], value: Any) -> str:
    return reasons.get(str(value), reasons[""])


def _short(value: Any) -> str:
    text = json.dumps(value) if not isinstance(value, str) else value
    return text if len(text) < 40 else f"{text[:36]} ..."
