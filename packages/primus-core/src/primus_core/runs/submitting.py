"""Writes what a job needs to run as it was submitted, and compares what is planned there with what was planned here."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from primus_core.config import submission, submitted_files
from primus_core.environment.resolve import belongs_to_session
from primus_core.plan.plan import Plan, PlannedFile
from primus_core.runs.settings import dotted, flatten
from primus_machine.facts import Facts
from primus_machine.secrets.redaction import is_secret_name, looks_secret, redact_text

__all__ = ["Difference", "differences", "files"]

_COPIES = f"{submission.FOLDER}/files"
_EMPTY = ".submitted"
"""Stands in the copy of each folder of hooks: one that was empty at submission is known to have been."""
_BESIDE_BYTES = 1 << 20
"""Of the files beside hooks, so much is copied."""
_MOST_LINKS = 1000
"""The entries of a larger folder around a script are not linked."""
_PRIVATE_KEY = "PRIVATE KEY-----"
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
    scripts = [step.script for step in plan.steps if step.script]
    copies = [_copy(path, secrets) for path in dict.fromkeys(map(os.path.realpath, (*inputs, *scripts)))]
    settings = [file.text for file in copies if file.source not in set(map(os.path.realpath, scripts))]
    known = {
        "schema": submitted_files.SCHEMA,
        "primus_version": plan.primus_version,
        "cwd": facts.cwd,
        "real": _real([*inputs, *scripts, *folders], facts.cwd),
        "variables": _referred(settings, facts.host.environ),
        "files": {
            file.source: {"sha256": submitted_files.checksum(file.source), "copied": not file.is_link}
            for file in copies
        },
    }
    taken = {file.source for file in copies}
    beside = [file for file in _beside(plan, secrets) if file.source not in taken]
    looked_in = (*folders, os.path.expanduser("~"))  # what they get later is not of this submission
    taken |= {file.source for file in beside} | set(map(os.path.realpath, looked_in))
    empty = [PlannedFile(f"{_COPIES}{os.path.realpath(folder)}/{_EMPTY}", "") for folder in folders]
    return (
        *copies,
        *beside,
        *_around(plan, os.path.realpath(facts.cwd), taken),
        *empty,
        PlannedFile(f"{submission.FOLDER}/planned.json", json.dumps(_compared(plan), indent=1)),
        PlannedFile(f"{submission.FOLDER}/submission.json", json.dumps(known, indent=1)),
    )


def _real(paths: Sequence[str], cwd: str) -> dict[str, str]:
    """Where links lead, by path: they may lead elsewhere when the job begins."""
    whole = {submission.absolute(path, cwd): os.path.realpath(path) for path in paths}
    return {path: real for path, real in whole.items() if path != real}


def _copy(path: str, secrets: Sequence[str]) -> PlannedFile:
    """A copy of a file, with its mode; of one that holds a secret, a link to it."""
    text = _text(path)
    if _PRIVATE_KEY in text or redact_text(text, secrets) != text:
        return _link(path)
    return PlannedFile(f"{_COPIES}{path}", text, path, stat.S_IMODE(os.stat(path).st_mode))


def _link(path: str) -> PlannedFile:
    return PlannedFile(f"{_COPIES}{path}", "", path, is_link=True)


def _referred(settings: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables to which settings refer by `${NAME}`: a job may be given another environment. No secrets."""
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
    before, now = (
        {dotted(path): value for path, value in flatten(config or {}).items()}
        for config in (old.get("config"), here.get("config"))
    )
    if before:  # without the backend on the submitting host, nobody knew
        keys = (key for key in dict.fromkeys((*before, *now)) if not key.startswith(_FOLLOWING))
        found += [Difference(key, before.get(key), now.get(key)) for key in keys]
    return [difference for difference in found if difference.submitted != difference.here]


def _compared(plan: Plan) -> dict[str, Any]:
    """What must be the same wherever it is planned."""
    keys = ("primus_version", "task", "framework", "model", "config")
    return {key: value for key, value in plan.to_dict().items() if key in keys}


def _beside(plan: Plan, secrets: Sequence[str]) -> Iterator[PlannedFile]:
    """The other files in the folders of hooks, which these may read: small ones as copies, the others as links."""
    left = _BESIDE_BYTES
    for folder in dict.fromkeys(os.path.dirname(step.script) for step in plan.steps if step.kind == "hook"):
        for entry in sorted(os.scandir(os.path.realpath(folder)), key=lambda entry: entry.name):
            if entry.is_file():
                about = entry.stat()
                left -= about.st_size
                is_copied = left >= 0 and about.st_mode & 0o077 and os.access(entry.path, os.R_OK)
                yield _copy(os.path.realpath(entry.path), secrets) if is_copied else _link(entry.path)


def _around(plan: Plan, cwd: str, taken: set[str]) -> Iterator[PlannedFile]:
    """Links to what else is in the folders around scripts: a script finds its helpers by its own path (`$0`)."""
    steps = [step for step in plan.steps if step.script]
    words = {word for step in steps for word in step.argv}  # folders of these names may get hooks later
    copied = {above for path in taken for above in (path, *_above(path))}
    for folder in dict.fromkeys(folder for step in steps for folder in _near(os.path.realpath(step.script), cwd)):
        names = sorted(os.listdir(folder)) if os.access(folder, os.R_OK) else []
        if len(names) <= _MOST_LINKS:
            paths = (os.path.join(folder, name) for name in names if name not in words)
            yield from (_link(path) for path in paths if path not in copied)


def _near(script: str, cwd: str) -> list[str]:
    """The folders around a script, up to where the command was typed; its own and the one above, at least."""
    folders = list(_above(script))[:-1]  # not the root
    return folders[: folders.index(cwd) + 1] if cwd in folders else folders[:2]


def _above(path: str) -> Iterator[str]:
    """The folders that `path` lies in, from the innermost to the root."""
    while (folder := os.path.dirname(path)) != path:
        yield folder
        path = folder


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return file.read()


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
