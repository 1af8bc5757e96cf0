"""Whether a replay can be the same run: what equals, what differs, and how much that matters."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from primus_core.errors import MachineError
from primus_core.execute.requirements import is_here
from primus_core.files.atomic import regular
from primus_core.host import HostRoot
from primus_core.machine.facts import Facts
from primus_core.plan.plan import Plan, Requirement
from primus_core.plan.secret_values import values_in
from primus_core.planning.planned import Planned
from primus_core.runs import repository, snapshot
from primus_core.runs.comparison import Severity, compare, severity
from primus_core.runs.replay import Replay
from primus_core.runs.saved import Saved, changed_paths, undump
from primus_core.secrets.names import SECRET

__all__ = ["Report", "Row", "ask_for_secrets", "check", "report"]

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
    own = ((replay.saved.plan.get("config") or {}).get("on_replay") or {}).get("settings", ())
    moved = {f"settings.{name}" for name in own}  # what each replay of such a run gets instead
    rows = [Row("note" if d.name in moved else severity(d, replay.saved, here), *d) for d in differences]
    rows += _missing(plan, replay, here.environment)
    equal = [_counted("plan", _essence(replay.plan.to_dict()) == _essence(here.plan))]
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
    masked = {k: v for k, v in saved.environment.items() if SECRET in v and k in environ}
    texts = snapshot.environment(plan, facts, environ)
    directory = plan.place.directory
    leave_out = (os.path.dirname(directory), os.path.dirname(saved.directory))
    code = repository.read(facts.cwd, facts.host.environ, leave_out=leave_out, secrets=secrets)
    packages = (line.partition("==") for line in texts["env/packages.txt"].split("\n") if line)
    return Saved(
        directory=directory,
        metadata={"run_id": plan.place.run_id},
        plan=json.loads(json.dumps(plan.to_dict())),
        # Of what a secret was taken out of, nobody can say whether it differs, and nobody shall show what it is here.
        environment={**undump(texts["env/primus_env_dump.txt"]), **masked},
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


def _missing(plan: Plan, replay: Replay, environ: Mapping[str, str]) -> Iterator[Row]:
    """What a run cannot do without, and which is not here."""
    for name in replay.missing_secrets:
        yield Row("blocking", "secret", name, "<secret>", "not set: export it")
    for name, text in _texts(plan):
        if SECRET in text:
            yield Row("blocking", "secret", name, SECRET, "not known: start the run anew, with its command line")
    for needed in plan.requires:
        if not is_here(needed, environ):
            yield Row("blocking", needed.kind, needed.name, "there", f"not here: {needed.fix}")
    for plugin in plan.hook_plugins:
        if not plugin.is_file and not is_here(Requirement("module", plugin.target.partition(":")[0], ""), environ):
            yield Row("blocking", "hooks", plugin.source, plugin.target, "not installed here")
    if plan.worker and not is_here(Requirement("module", plan.worker.module, ""), environ):
        yield Row("blocking", "backend", plan.framework or plan.task, plan.worker.module, "not installed here")


def _texts(plan: Plan) -> Iterator[tuple[str, str]]:
    """What a run is started with and no environment carries: in a snapshot a secret is missing from it."""
    yield "the worker's arguments", " ".join(plan.worker.args) if plan.worker else ""
    yield from ((step.name, " ".join(step.argv)) for step in plan.steps if step.kind == "prepare")
    yield from ((file.path, file.text) for file in plan.files)
    for step in plan.steps:
        if step.script:
            yield step.name, _text_of(step.script)
    yield from ((f"hooks of {p.source}", _text_of(p.target)) for p in plan.hook_plugins if p.is_file)


def _text_of(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace", opener=regular) as file:
        return file.read()


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


def ask_for_secrets(planned: Planned, host: HostRoot) -> HostRoot | None:
    """The machine with the secrets that no snapshot holds, asked of the person; None: nothing was asked."""
    names = planned.replay.missing_secrets if planned.replay else ()
    if not names or planned.switches.check or planned.switches.dry_run or not sys.stdin.isatty():
        return None
    from getpass import getpass

    given = {name: getpass(f"primus: {name} is a secret that the run had. Its value: ") for name in names}
    return dataclasses.replace(host, environ={**host.environ, **given})


def check(planned: Planned) -> int | None:
    """Say what equals and what differs; the exit code where that is all, None where the run goes on.

    Raises:
        MachineError: it cannot be the same run, and nobody said `--force`.
    """
    assert planned.replay
    switches = planned.switches
    found = report(planned.plan, planned.facts, planned.replay)
    if switches.check and switches.json:
        sys.stdout.write(json.dumps(_plain(found, planned), indent=1) + "\n")
    else:
        (sys.stdout if switches.check else sys.stderr).write(_text(found, planned))
    if switches.check:
        return 3 if found.blocking else 0
    if found.blocking and not switches.force:
        raise MachineError(
            "this cannot be the same run",
            why="\n".join(f"{row.name}: {row.before} then, {row.after} here" for row in found.blocking),
            fix="go where it can, or start it all the same with --force",
        )
    return None


def _plain(found: Report, planned: Planned) -> dict[str, object]:
    assert planned.replay
    return {
        "run": planned.replay.saved.directory,
        "replayable": not found.blocking,
        "equal": list(found.equal),
        "differences": [row._asdict() for row in found.rows],
    }


def _text(found: Report, planned: Planned) -> str:
    assert planned.replay
    known = planned.replay.saved.metadata
    step, loss = known.get("last_step"), known.get("last_loss")
    reached = f", step {step}, loss {loss:.4f}" if isinstance(step, int) and isinstance(loss, int | float) else ""
    lines = [f"primus: replay of {planned.replay.saved.directory} ({known.get('status', 'unknown')}{reached})"]
    lines.append(f"  {'equal':<9} {', '.join(found.equal) or 'nothing'}")
    for row in found.rows:
        change = f"{_short(row.before) or 'not set'} → {_short(row.after) or 'not set'}"
        lines.append(f"  {row.severity:<9} {row.category}: {row.name}: {change}")
    return "\n".join(lines) + "\n"


def _short(text: str) -> str:
    line = text.replace("\n", " ")
    return line if len(line) <= 80 else line[:77] + "..."
