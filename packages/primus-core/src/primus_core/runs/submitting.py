"""Writes what a job needs to run as it was submitted, and compares what is planned there with what was planned here."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from primus_core import submission
from primus_core.environment import belongs_to_session
from primus_core.facts import Facts
from primus_core.plan import Plan, PlannedFile
from primus_core.secrets import is_secret_name, looks_secret, redact_text

__all__ = ["Difference", "differences", "files"]

_COPIES = f"{submission.FOLDER}/files"
_EMPTY = ".submitted"
"""Stands in the copy of each folder of hooks: one that was empty at submission is known to have been."""
_BESIDE_BYTES = 256 * 1024
"""A file beside a hook is copied with it up to this size: the hook may read it."""
_SETTINGS = (".yaml", ".yml", ".toml")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)")


class Difference(NamedTuple):
    """A setting that came out differently where the run started."""

    key: str
    submitted: Any
    here: Any

    def __str__(self) -> str:
        return f"{self.key} {_short(self.submitted)} → {_short(self.here)}"


def files(
    plan: Plan, facts: Facts, inputs: Sequence[str], folders: Sequence[str], secrets: Sequence[str]
) -> tuple[PlannedFile, ...]:
    """The files of a submission. `inputs`: what `plan` was made from; `folders`: where hooks were looked for."""
    texts = {path: _text(path) for path in dict.fromkeys((*inputs, *_beside(plan))) if os.path.isfile(path)}
    open_ones = {path: text for path, text in texts.items() if redact_text(text, secrets) == text}
    known = {
        "schema": submission.SCHEMA,
        "primus_version": plan.primus_version,
        "cwd": facts.cwd,
        "variables": _referred(open_ones, facts.host.environ),
        "files": {path: {"sha256": _hash(text), "copied": path in open_ones} for path, text in texts.items()},
    }
    return (
        *(PlannedFile(f"{_COPIES}{path}", text, path) for path, text in open_ones.items()),
        *(PlannedFile(f"{_COPIES}{folder}/{_EMPTY}", "") for folder in folders if os.path.isdir(folder)),
        PlannedFile(f"{submission.FOLDER}/planned.json", json.dumps(_compared(plan), indent=1)),
        PlannedFile(f"{submission.FOLDER}/submission.json", json.dumps(known, indent=1)),
    )


def _referred(texts: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables to which settings refer by `${NAME}`: a job may be given another environment. No secrets."""
    settings = (text for path, text in texts.items() if path.endswith(_SETTINGS))
    names = sorted({name for text in settings for name in _REFERENCE.findall(text)} & environ.keys())
    return {
        name: environ[name]
        for name in names
        if not (belongs_to_session(name) or is_secret_name(name) or looks_secret(environ[name]))
    }


_FOLLOWING = ("hyperparameters.", "on_replay.")
"""What follows from other settings."""


def differences(plan: Plan, environ: Mapping[str, str]) -> list[Difference]:
    """How the plan of this node differs from what was submitted."""
    found_here = submission.of(environ)
    old = found_here.planned() if found_here else {}
    if not old:
        return []
    here = _compared(plan)
    found = [Difference(key, old.get(key), here[key]) for key in here if key != "config"]
    before, now = (dict(_leaves(config or {})) for config in (old.get("config"), here.get("config")))
    if before:  # without the backend on the submitting host, nobody knew
        keys = (key for key in dict.fromkeys((*before, *now)) if not key.startswith(_FOLLOWING))
        found += [Difference(key, before.get(key), now.get(key)) for key in keys]
    return [difference for difference in found if difference.submitted != difference.here]


def _compared(plan: Plan) -> dict[str, Any]:
    """What must be the same wherever it is planned."""
    keys = ("primus_version", "task", "framework", "model", "config")
    return {key: value for key, value in plan.to_dict().items() if key in keys}


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, below in value.items():
            yield from _leaves(below, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def _beside(plan: Plan) -> Iterator[str]:
    """The scripts, and the other files in their folders, which they may read."""
    scripts = [step.script for step in plan.steps if step.script]
    yield from scripts
    for folder in dict.fromkeys(os.path.dirname(step.script) for step in plan.steps if step.kind == "hook"):
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            if entry.is_file() and entry.stat().st_size <= _BESIDE_BYTES:
                yield entry.path


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return file.read()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
