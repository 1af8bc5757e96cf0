"""Whether a replay can be the same run: what equals, what differs, and how much that matters."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

from primus_core import repository, snapshot
from primus_core.comparison import Severity, compare, severity
from primus_core.facts import Facts
from primus_core.plan import Plan
from primus_core.replay import Replay
from primus_core.saved import Saved, changed_paths, undump
from primus_core.secrets import values_in

__all__ = ["Report", "Row", "report"]

_ORDER = ("blocking", "warning", "note")


class Row(NamedTuple):
    """One difference between the saved run and its replay here."""

    severity: Severity
    category: str
    name: str
    before: str
    after: str


class Report(NamedTuple):
    """All differences, the worst first, and what is equal."""

    rows: tuple[Row, ...]
    equal: tuple[str, ...]

    @property
    def blocking(self) -> tuple[Row, ...]:
        """What makes it another run, or none at all."""
        return tuple(row for row in self.rows if row.severity == "blocking")


def report(plan: Plan, facts: Facts, replay: Replay) -> Report:
    """Compare the saved run with `plan`, its replay on the machine of `facts`. Runs git to see the code."""
    here = _here(plan, facts, replay.saved)
    differences = compare(replay.saved, here)
    rows = [Row(severity(d, replay.saved, here), *d) for d in differences]
    rows += _missing(plan, replay)
    equal = [_counted("plan", _essence(replay.saved.plan) == _essence(here.plan))]
    for category, size in _sizes(replay.saved).items():
        equal.append(_counted(category, all(d.category != category for d in differences), size))
    rows.sort(key=lambda row: _ORDER.index(row.severity))
    return Report(tuple(rows), tuple(filter(None, equal)))


def _counted(name: str, equal: bool, size: int = 0) -> str:
    return f"{name} ({size})" if equal and size else name if equal else ""


def _sizes(saved: Saved) -> dict[str, int]:
    return {
        "config": 0,
        "environment": len(saved.environment),
        "packages": len(saved.packages),
        "code": 0,
        "hardware": 0,
    }


def _here(plan: Plan, facts: Facts, saved: Saved) -> Saved:
    """The replay as a snapshot of it would be."""
    environ = plan.environ(facts.host.environ)
    secrets = values_in(plan, environ)
    texts = snapshot.environment(plan, facts, environ)
    directory = plan.place.directory
    leave_out = (os.path.dirname(directory), os.path.dirname(saved.directory))
    code = repository.read(facts.cwd, facts.host.environ, leave_out=leave_out, secrets=secrets)
    packages = (line.partition("==") for line in texts["env/packages.txt"].split("\n") if line)
    return Saved(
        directory=directory,
        metadata={"run_id": plan.place.run_id},
        plan=json.loads(json.dumps(plan.to_dict())),
        environment=undump(texts["env/primus_env_dump.txt"]),
        packages={name: version for name, _, version in packages},
        system=json.loads(texts["env/system_info.json"]),
        code={**code.summary, "changed": list(changed_paths(code.patch.encode("utf-8", "surrogateescape")))},
        configs=dict(_configs(plan)),
        files=saved.files,
    )


def _configs(plan: Plan) -> Iterator[tuple[str, Any]]:
    for file in plan.files:
        if file.path.startswith("config/") and file.path.endswith(".json"):
            yield os.path.basename(file.path).removesuffix(".json"), json.loads(file.text)


def _missing(plan: Plan, replay: Replay) -> Iterator[Row]:
    """What a run cannot do without, and which is not here."""
    for name in replay.missing_secrets:
        yield Row("blocking", "secret", name, "<secret>", "not set: export it")
    for needed in plan.requires:
        if needed.kind == "module" and not _is_importable(needed.name):
            yield Row("blocking", "package", needed.name, "installed", f"not here: {needed.fix}")
    if plan.worker and not _is_importable(plan.worker.module):
        yield Row("blocking", "backend", plan.framework or plan.task, plan.worker.module, "not installed here")


def _is_importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _essence(plan: dict[str, Any]) -> str:
    """What a plan starts, less where and when: equal for a run and its faithful replay."""
    steps = [[step["name"], step["ranks"], step["argv"][1:]] for step in plan["steps"] if step["kind"] == "prepare"]
    scripts = [[step["kind"], step["argv"][-1:]] for step in plan["steps"] if step.get("script")]
    place, where = plan["distributed"], plan["place"]
    kept = ("task", "scope", "worker", "files", "config", "metrics_rank", "framework", "model", "gpu_model")
    text = json.dumps(
        [steps, len(scripts), place["nnodes"], place["gpus_per_node"], *(plan[name] for name in kept)], sort_keys=True
    )
    for own, mark in ((where["directory"], "<run>"), (where["run_id"], "<id>")):
        for form in {own, json.dumps(own)[1:-1], json.dumps(json.dumps(own)[1:-1])[1:-1]}:
            text = text.replace(form, mark)
    return text
