"""What `primus runs diff` says: what two runs started from, what they came to, and their losses side by side."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from primus_core.output.console import say
from primus_core.plugins.catalogue import Catalogue
from primus_core.runs.comparison import Difference
from primus_core.runs.saved import Saved
from primus_machine.host import HostRoot
from primus_runs import curves
from primus_runs.comparison import agreed, compare, is_one_framework
from primus_runs.curves import Curve
from primus_runs.listing import of_status
from primus_runs.status import status_of
from primus_runs.view import cell, duration, loss, table

__all__ = ["data", "text"]

_WIDTH = 118


def data(a: Saved, b: Saved, host: HostRoot) -> dict[str, Any]:
    """Everything, as `--json` gives it."""
    before, after = (curves.read(run.directory) for run in (a, b))
    return {
        "differences": [row._asdict() for row in (*compare(a, b), *_of_packages(a, b, host))],
        "one_framework": is_one_framework(a, b),
        "agreed": agreed(a, b),
        "results": {"a": _results(a, before, host), "b": _results(b, after, host)},
        "curves": [point.to_dict() for point in curves.side_by_side(before, after)],
    }


def _of_packages(a: Saved, b: Saved, host: HostRoot) -> Iterator[Difference]:
    """What packages find by themselves in what their tasks left (entry points of the group `primus.comparisons`)."""
    for plugin in Catalogue.here(host).of("comparisons"):
        try:
            yield from plugin.load()(a.directory, b.directory)
        except Exception as error:  # it is anybody's, and must not take the rest along
            say(f"primus: note: {plugin.source} cannot compare these runs: {type(error).__name__}: {error}\n")


def _results(run: Saved, curve: Curve, host: HostRoot) -> dict[str, Any]:
    """What a run came to."""
    listed = of_status(run.directory, status_of(run.directory, host), host)
    known = curve.last_step is not None
    return {
        "run": listed.name,
        "directory": run.directory,
        "status": listed.status,
        "duration_s": listed.duration_s,
        "last_step": curve.last_step if known else listed.last_step,
        "last_loss": curve.last_loss if known else listed.last_loss,
        "tokens_per_second": curve.tokens_per_second,
        "continues": listed.continues,
    }


def text(data: Mapping[str, Any]) -> str:
    """The same for people."""
    a, b = data["results"]["a"], data["results"]["b"]
    names = (cell(a["run"]), cell(b["run"]))
    rows = [[cell(value) for value in row.values()] for row in data["differences"]]
    changed = table(rows, ("category", "what", *names), 60) if rows else "the recorded inputs of the two runs are equal"
    results = [[label, *(_result(run[key], write) for run in (a, b))] for label, key, write in _RESULTS]
    losses = [list(_point(point)) for point in data["curves"]]
    parts = [changed, *_across_frameworks(data), table(results, ("result", *names))]
    if losses:
        parts += [table(losses, ("loss at step", *names, "difference", "relative"))]
    elif a["last_loss"] is not None is not b["last_loss"]:
        parts += ["\n".join(("no step has a loss in both runs: there is nothing to compare", *_of_before(a, b)))]
    return "\n\n".join(parts)


def _of_before(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    """The runs that these two continue, which have the steps before."""
    for run, words in ((a, (a["continues"], b["run"])), (b, (a["run"], b["continues"]))):
        if run["continues"] and words[0] != words[1]:
            yield f"{cell(run['run'])} continues another: primus runs diff {shlex.join(words)}"


def _across_frameworks(data: Mapping[str, Any]) -> Iterator[str]:
    """What both have words for and agree in, and where the rest stands."""
    if data["one_framework"]:
        return
    agreed = ", ".join(f"{name} {cell(_plain(value))}" for name, value in data["agreed"].items())
    known = agreed or "nothing (not both runs have hyperparameters in config/backend_config.json)"
    yield textwrap.fill(f"equal in both: {known}", _WIDTH, break_long_words=False, break_on_hyphens=False)
    yield "Settings of only one framework are not compared; see config/backend_config.json of each run."


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _point(point: Mapping[str, Any]) -> Iterator[str]:
    relative = point["relative"]
    yield str(point["step"])
    yield from (loss(point[run]) for run in "ab")
    yield f"{point['difference']:+.4f}"
    yield "-" if relative is None else f"{relative:+.1%}"


_RESULTS = (
    ("status", "status", cell),
    ("duration", "duration_s", duration),
    ("last step", "last_step", str),
    ("last loss", "last_loss", loss),
    ("median tokens/s", "tokens_per_second", "{:,.0f}".format),
)


def _result(value: Any, write: Any) -> str:
    return "-" if value is None else str(write(value))
