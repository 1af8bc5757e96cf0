"""Settings of TorchTitan 0.2 (its TOML files) under their names of today, by the table in `moved_settings.json`."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from primus_core.config.document import Document, at, dotted
from primus_core.errors import ConfigError, Mistakes
from primus_train.migration import Fate, fate_of, fix_of
from primus_train.overrides import is_typed
from primus_train.released import is_released
from primus_train.templates.recipe import leaves

__all__ = ["adopt", "fate", "moved", "names_now", "renamed", "translate"]

KeyPath = tuple[str, ...]
_SECTIONS = frozenset({"job", "model", "training", "optimizer", "lr_scheduler", "metrics", "parallelism", "checkpoint"})


@functools.cache
def moved() -> Mapping[str, Mapping[str, Any]]:
    """The table. A row says `to` (the new name), `ignored` (why), or `gone` (why) with `instead` and `unless`. With
    `items`, the new name takes a list of these only, and the setting is gone for all others.

    A name that ends in `.*` stands for the whole section.
    """
    rows = json.loads((Path(__file__).parent / "moved_settings.json").read_text(encoding="utf-8"))
    return {name: row for name, row in rows.items() if not name.startswith("#")}


def adopt(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """An experiment from a whole TorchTitan 0.2 file, or None if `document` is not one.

    Its sections become `modules.pre_trainer.overrides` as they stand, key for key, so that the kernel can keep their
    places; `translate` gives them today's names afterwards. `job.dump_folder` becomes the workspace, and
    `job.description` the experiment's name: they are no settings any more.
    """
    known = _SECTIONS & {name for name, value in document.items() if isinstance(value, Mapping)}
    if "modules" in document or len(known) < 2:
        return None
    return {
        "work_group": "torchtitan",
        "user_name": "torchtitan",
        "exp_name": _experiment_name(document),
        "workspace": at(document, ("job", "dump_folder")) or "./outputs",
        "modules": {"pre_trainer": {"framework": "torchtitan", "overrides": _without_job(document)}},
    }


def _without_job(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections without what the experiment itself has of `job`."""
    job = document.get("job")
    if not isinstance(job, Mapping):
        return dict(document)
    kept = {key: value for key, value in job.items() if not (value and key in ("dump_folder", "description"))}
    return {key: kept if key == "job" else value for key, value in document.items() if key != "job" or kept}


def _experiment_name(document: Mapping[str, Any]) -> str:
    """From the description where there is one, else from the model."""
    text = at(document, ("job", "description")) or "-".join(
        str(at(document, ("model", key)) or "model") for key in ("name", "flavor")
    )
    kept = "".join(char if char.isalnum() or char in "._-" else "_" for char in text)
    return "_".join(filter(None, kept.split("_")))[:80]


def translate(document: Document, mistakes: Mistakes | None = None) -> tuple[Document, tuple[str, ...]]:
    """`document` with 0.2's names replaced, places kept, and notes on what has no effect any more.

    With `mistakes`, what is wrong goes there.

    Raises:
        ConfigError: a setting is gone, with what takes its place, or stands under both names.
    """
    work = _Translation(document)
    work.walk(document.data, ())
    if mistakes is None:
        work.mistakes.refuse()
    else:
        mistakes.add(*work.mistakes.found)
    return Document(work.data, work.marks), tuple(work.notes)


class _Translation:
    """One pass over a document."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.data: dict[str, Any] = {}
        self.marks = dict(document.marks)
        self.notes: list[str] = []
        self.mistakes = Mistakes()

    def walk(self, data: Mapping[str, Any], path: KeyPath) -> None:
        for key, value in data.items():
            here = (*path, *str(key).split("."))
            if isinstance(value, Mapping):
                self.walk(value, here)
            else:
                with self.mistakes:
                    self.setting(here, value)

    def setting(self, path: KeyPath, value: Any) -> None:
        if row := _row(dotted(path)):
            self.moved(path, value, row)
        else:
            self.put(path, value, path)

    def moved(self, path: KeyPath, value: Any, row: Mapping[str, Any]) -> None:
        name = dotted(path)
        if "to" in row and _has_only(value, row):
            self.put(tuple(_target(name, row).split(".")), value, path)
            return
        if "gone" in row and not _neutral(value, row):
            what = f"'{name}' was removed from TorchTitan: {row['gone']}"
            raise ConfigError(what, where=self.document.where(path), fix=fix_of(row))
        if "gone" in row or not _neutral(value, row):
            self.notes.append(f"'{name}' has no effect: {row.get('ignored') or row['gone']}")

    def put(self, path: KeyPath, value: Any, origin: KeyPath) -> None:
        folder = self.data
        for part in path[:-1]:
            folder = folder.setdefault(part, {})
        if path[-1] in folder and is_released(self.document.where(origin)):
            return  # a preset of AMD's yields to the experiment, whichever name that one uses
        typed = is_typed(self.document.where(origin))
        if path[-1] in folder and is_typed(self.marks.get(path, "")) and not typed:
            return  # the command line wins, whichever name it uses
        yields = is_released(self.marks.get(path, "")) or typed
        if path[-1] in folder and folder[path[-1]] != value and not yields:
            raise ConfigError(
                f"'{dotted(origin)}' and '{dotted(path)}' are the same setting with different values",
                where=self.document.where(origin),
                fix=f"keep '{dotted(path)}'",
            )
        folder[path[-1]] = value
        if (mark := self.document.where(origin)) and path != origin:
            self.marks[path] = mark


def renamed(document: Document) -> dict[str, str]:
    """Return what the settings of `document` that have a name of 0.2 are called today."""
    names = [dotted(path) for path, _ in leaves(document.data)]
    return {name: now for name in names for now in names_now(name) if now != name}


def names_now(name: str) -> tuple[str, ...]:
    """Return what a setting of 0.2 is called today; empty: it has no effect, or is gone."""
    row = _row(name)
    return (name,) if row is None else (_target(name, row),) if "to" in row else ()


def fate(name: str, value: Any) -> Fate | None:
    """Return what became of a setting of 0.2, or None if nothing did."""
    if (row := _row(name)) is None:
        return None
    if "to" in row and _has_only(value, row):
        return Fate(to=_target(name, row), why="renamed in TorchTitan 0.3")
    return fate_of({key: text for key, text in {"since": "0.3", **row}.items() if key != "to"}, "TorchTitan")


def _row(name: str) -> Mapping[str, Any] | None:
    """The row for a name: its own, or that of the nearest section around it."""
    table = moved()
    if name in table:
        return table[name]
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):  # of the sections around it
        if (row := table.get(".".join(parts[:length]) + ".*")) is not None:
            return row
    return None


def _target(name: str, row: Mapping[str, Any]) -> str:
    to: str = row["to"]
    return to.removesuffix(".*") + "." + name.rsplit(".", maxsplit=1)[-1] if to.endswith(".*") else to


def _has_only(value: Any, row: Mapping[str, Any]) -> bool:
    """Whether a list has only what the new name takes."""
    return "items" not in row or (isinstance(value, list) and bool(value) and set(value) <= set(row["items"]))


def _neutral(value: Any, row: Mapping[str, Any]) -> bool:
    """Whether the value is the one that asked for nothing."""
    return "unless" in row and value in row["unless"]
