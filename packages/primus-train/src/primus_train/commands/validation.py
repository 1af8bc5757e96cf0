"""`primus config validate`: check all that a launch checks, for one experiment or for each in a folder."""

from __future__ import annotations

import argparse
import copy
import os
import re
import shlex
from dataclasses import dataclass, field
from typing import Any

from primus_core import requirements
from primus_core.errors import PrimusError, RequestError
from primus_machine.captures.assumed import assume_gpus
from primus_machine.facts import Facts
from primus_machine.gpus import models
from primus_machine.host import HostRoot
from primus_machine.units import counted
from primus_train.commands import families
from primus_train.commands.resolved import (
    as_json,
    assume_machine,
    name_machines,
    plan_launch,
    refuse_misplaced,
    resolve_file,
    write_text,
)

__all__ = ["validate"]

_SUFFIXES = (".yaml", ".yml", ".toml")
_OF_SYSTEM = ("primus.yaml", ".primus.yaml")
_NODES = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 192, 256, 384, 512)
"""Numbers of nodes to try where one is too few."""
_MANY = 64
"""What is wrong with one node and with so many has nothing to do with their number."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What became of one experiment."""

    file: str
    gpu: str
    summary: str = ""
    nodes: int = 0
    notes: tuple[str, ...] = ()
    error: PrimusError | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        errors = self.error.each() if self.error else ()
        rows = [{"what": e.what, "where": e.where, "why": e.why, "fix": e.fix} for e in errors]
        known = {"file": self.file, "gpu": self.gpu, "accepted": not errors}
        return {**known, "nodes": self.nodes, "notes": list(self.notes), "errors": rows}


def validate(args: argparse.Namespace) -> int:
    """Write one line on what the experiment would be. What a launch would refuse is an error, in the same words."""
    refuse_misplaced(args)
    if args.markdown and not os.path.isdir(args.file):
        raise RequestError("--markdown is for a folder", fix="name a folder, or remove it")
    if os.path.isdir(args.file):
        return _validate_folder(args)
    found = _judge(args)
    if found.error and not args.json:
        raise found.error
    notes = "".join(f"note: {note}\n" for note in found.notes)
    write_text(as_json(found.to_dict()) if args.json else f"{args.file} is valid: {found.summary}\n{notes}")
    return found.error.exit_code if found.error else 0


def _validate_folder(args: argparse.Namespace) -> int:
    if args.gpu:
        assume_gpus(args.gpu, 1)  # a wrong name is no mistake of the experiments
    found = [_judge(_for_file(args, path)) for path in _experiments(args.file)]
    if not found:
        raise RequestError(
            f"there is no experiment in {args.file}", fix=f"name a folder with {', '.join(_SUFFIXES)} files"
        )
    report = _Report(args.file, found)
    write_text(as_json(report.to_dict()) if args.json else report.markdown() if args.markdown else report.text())
    return 2 if report.refused else 0


def _experiments(folder: str) -> list[str]:
    """Return the files below a folder, in order, without those of system configs."""
    walk = (os.path.join(top, name) for top, _, names in os.walk(folder) for name in names if name not in _OF_SYSTEM)
    return sorted(path for path in walk if path.endswith(_SUFFIXES))


def _for_file(args: argparse.Namespace, path: str) -> argparse.Namespace:
    """Return the words for one file. A folder that is called as a GPU, such as MI300X, has experiments for it."""
    own = copy.copy(args)
    named = [part for part in os.path.abspath(path).split(os.sep)[:-1] if models.by_name(part)]
    own.file, own.gpu = path, args.gpu or ("" if args.assume_host or not named else named[-1])
    return own


@dataclass(frozen=True, slots=True)
class _Report:
    """What became of all experiments in a folder."""

    folder: str
    verdicts: list[_Verdict]
    refused: dict[str, list[_Verdict]] = field(default_factory=dict)
    """By reason, the most frequent first."""

    def __post_init__(self) -> None:
        """Group what was refused."""
        found: dict[str, list[_Verdict]] = {}
        for one in self.verdicts:
            if one.error:
                found.setdefault(_reason(one.error), []).append(one)
        self.refused.update(sorted(found.items(), key=lambda row: -len(row[1])))

    def counts(self) -> dict[str, int]:
        """Return how many were accepted, with notes that not all have, and refused."""
        accepted = sum(not one.error for one in self.verdicts)
        return {"files": len(self.verdicts), "accepted": accepted, "with_notes": len(self.noted()),
                "refused": len(self.verdicts) - accepted}  # fmt: skip

    def noted(self) -> list[_Verdict]:
        """Return those that were accepted with notes that not all have."""
        accepted = [one for one in self.verdicts if not one.error]
        of_all = families.notes_of_all(accepted)
        return [one for one in accepted if set(one.notes) - of_all]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        reasons = [{"reason": reason, "files": [one.file for one in some]} for reason, some in self.refused.items()]
        return {**self.counts(), "reasons": reasons, "experiments": [one.to_dict() for one in self.verdicts]}

    def markdown(self) -> str:
        """Return a table by family of models, for a page."""
        return families.markdown(self.verdicts, _reason)

    def text(self) -> str:
        """Return the table for people."""
        number = self.counts()
        lines = [f"{number['accepted']} of {counted(number['files'], 'experiment')} in {self.folder} are valid"]
        for one in self.noted()[:1]:
            show = (
                f"primus config validate {shlex.quote(one.file)}{f' --gpu {shlex.quote(one.gpu)}' if one.gpu else ''}"
            )
            lines += [f"{number['with_notes']} of them with notes, which --json shows; those of one: {show}"]
        if self.refused:
            lines += [
                "",
                "files  refused because",
                *(f"{len(some):5}  {why}" for why, some in self.refused.items()),
                "",
            ]
            for reason, some in self.refused.items():
                lines += [reason, *(f"  {os.path.relpath(one.file, self.folder)}" for one in some)]
        return "\n".join(lines) + "\n"


def _reason(error: PrimusError) -> str:
    """Return what the first error says, without the place."""
    first = error.each()[0]
    return re.sub(rf"^{re.escape(getattr(first, 'where', ''))}: ", "", first.what)


def _judge(args: argparse.Namespace) -> _Verdict:
    """Plan the experiment. Where nobody said how many nodes there are, on as few as its layout allows."""
    try:
        facts, gpu = assume_machine(args.file, args)
        found = _attempt(args, facts, gpu)
        return _on_more_nodes(args, found, _reason(found.error)) if found.error and _is_open(args, gpu) else found
    except PrimusError as error:
        return _Verdict(args.file, args.gpu, error=error)


def _is_open(args: argparse.Namespace, gpu: str) -> bool:
    """Check whether the number of nodes is open: machines with GPUs are known, and nobody said how many."""
    return bool(gpu) and not args.nodes and HostRoot().environ.get("NNODES") is None


def _on_more_nodes(args: argparse.Namespace, found: _Verdict, why: str) -> _Verdict:
    """Return the verdict for the fewest nodes of which the layout does not complain. `why` fewer are not enough."""
    best = found
    if str((many := _with_nodes(args, _MANY)).error) == str(found.error):
        return found  # it is not about the number
    if not (about_number := _errors(found) - _errors(many)):
        return found
    for nodes in _NODES:
        one = _with_nodes(args, nodes)
        if _count(one) < _count(best) or (best is found and not _errors(one) & about_number):
            best = one
        if not one.error:
            note = f"{why}: validated for {counted(nodes, 'node')} (--nodes N for another number)"
            return _Verdict(one.file, one.gpu, one.summary, nodes, (note, *one.notes))
    return best


def _with_nodes(args: argparse.Namespace, nodes: int) -> _Verdict:
    more = copy.copy(args)
    more.nodes = nodes
    return _attempt(more, *assume_machine(args.file, more))


def _errors(found: _Verdict) -> set[str]:
    """Return its errors, without numbers: those of another number of nodes are the same."""
    return {re.sub(r"\d+", "N", str(error)) for error in found.error.each()} if found.error else set()


def _count(found: _Verdict) -> int:
    return len(found.error.each()) if found.error else 0


def _attempt(args: argparse.Namespace, facts: Facts, gpu: str) -> _Verdict:
    try:
        return _accepted(args, facts, gpu)
    except PrimusError as error:
        name_machines(error, args, facts, lambda facts: plan_launch(args, facts, anew=True))
        return _Verdict(args.file, gpu, error=error)


def _accepted(args: argparse.Namespace, facts: Facts, gpu: str) -> _Verdict:
    whole = plan_launch(args, facts)
    if facts.host.is_here:
        requirements.check_plan(whole, facts.host.environ, installed=False)
    found, place, on = resolve_file(args.file, args, args.overrides)
    planned = found.planned
    layout = ", ".join(f"{name} {size}" for name, size in planned.layout.items() if size > 1 or name == "data")
    tokens = f"{planned.tokens_per_step:,} tokens per step" if planned.tokens_per_step else ""
    ranks = "number of ranks not known" if place.tentative else counted(place.world_size, "rank")
    parts = filter(None, (found.experiment.modules[found.module].framework, f"{ranks} ({on})", layout, tokens))
    absent = requirements.absent_files(whole) if not facts.host.is_here else []
    memory = [one for one in whole.requires if one.kind == "memory" and facts.host.is_here]
    notes = (*planned.notes, *(f"{e.what} here; the nodes need it" for e in absent),
             *(f"{e.what}: it does not start here" for e in requirements.missing(memory, {})))  # fmt: skip
    return _Verdict(args.file, gpu, "; ".join(parts), place.nnodes, notes)
