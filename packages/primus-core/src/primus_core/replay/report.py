"""Whether a replay can be the same run: what equals, what differs, and how much that matters."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from primus_core import variables
from primus_core.installed.homes import home_of, how_to_install
from primus_core.journal.record import RunRecord
from primus_core.plan.plan import Plan, Requirement
from primus_core.plan.secret_values import values_in
from primus_core.replay.prepare import Replay
from primus_core.requirements import is_here
from primus_core.runs import snapshot
from primus_core.runs.comparison import Severity, compare, severity
from primus_core.runs.saved import Saved
from primus_core.runs.snapshot_form import parse_env_dump
from primus_machine.code import repository
from primus_machine.code.patch import changed_paths
from primus_machine.errors import MachineError
from primus_machine.facts import Facts
from primus_machine.files.atomic import regular
from primus_machine.secrets.names import SECRET
from primus_machine.text import printable

__all__ = ["Report", "Row", "check", "compared"]

_ORDER = ("blocking", "warning", "note")
_OF_IMAGE = ("packages", "module", "backend", "hooks")
"""What a container has of its own."""


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


def compared(plan: Plan, facts: Facts, replay: Replay, around: Sequence[str] = ()) -> Report:
    """Compare the saved run with `plan`, that of the ranks in its replay, on the machine of `facts`, within the
    runtimes `around`. Runs git to see the code. Of a machine that nobody knows yet, the hardware is left out.
    """
    here = _here(plan, facts, replay.saved, around)
    differences = compare(replay.saved, here)
    own = ((replay.saved.plan.get("config") or {}).get("on_replay") or {}).get("settings", ())
    moved = {f"settings.{name}" for name in own}  # what each replay of such a run gets instead
    rows = [Row("note" if d.name in moved else severity(d, replay.saved, here), *d) for d in differences]
    rows += _missing(plan, replay, here.environment)
    equal = [_counted("plan", _essence(replay.plan.to_dict()) == _essence(here.plan))]
    sizes = _sizes(replay.saved)
    if not facts.host.is_known:
        del sizes["hardware"]
        rows.append(Row("note", "hardware", "nodes", "known", f"not before {around[0]} has chosen them"))
    in_image = variables.IMAGE in replay.saved.environment and variables.IMAGE not in here.environment
    if in_image and replay.plan.place.outer in around[-1:]:
        del sizes["packages"]
        rows = [row for row in rows if row.category not in _OF_IMAGE]
        rows.append(Row("note", "packages", "of the image", "recorded", "not compared from outside the container"))
    if not replay.saved.code.get("root"):
        del sizes["code"]
        rows = [row for row in rows if row.category != "code"]
        rows.append(Row("note", "code", "in no git repository", "not recorded", "not compared"))
    for category, size in sizes.items():
        equal.append(_counted(category, all(d.category != category for d in differences), size))
    rows.sort(key=lambda row: _ORDER.index(row.severity))
    return Report(tuple(rows), tuple(filter(None, equal)))


def _counted(name: str, equal: bool, size: int = 0) -> str:
    return f"{name} ({size})" if equal and size else name if equal else ""


def _sizes(saved: Saved) -> dict[str, int]:
    environment, packages = len(saved.environment), len(saved.packages)
    return {"config": 0, "environment": environment, "packages": packages, "code": 0, "hardware": 0}


def _here(plan: Plan, facts: Facts, saved: Saved, around: Sequence[str]) -> Saved:
    """The replay as a snapshot of it would be."""
    inside = plan._replace(place=plan.place._replace(outer=around[-1])) if around else plan
    environ = plan.environ(facts.host.environ)
    secrets = values_in(plan, environ)
    masked = {k: v for k, v in saved.environment.items() if SECRET in v and k in environ}
    texts = snapshot.environment(plan, facts, environ)
    directory, planned = plan.place.directory, json.dumps(inside.to_dict())
    leave_out = (os.path.dirname(directory), os.path.dirname(saved.directory))
    code = repository.read(facts.cwd, facts.host.environ, leave_out=leave_out, secrets=secrets)
    packages = (line.partition("==") for line in texts["env/packages.txt"].split("\n") if line)
    return Saved(
        directory=directory,
        record=RunRecord(run_id=plan.place.run_id, runtime=around[0] if around else ""),
        plan=json.loads(planned.replace(f"{saved.directory}/submitted/", f"{directory}/submitted/")),
        # Of what a secret was taken out of, nobody can say whether it differs, and nobody shall show what it is here.
        environment={**parse_env_dump(texts["env/primus_env_dump.txt"]), **masked},
        packages={name: version for name, _, version in packages},
        system=json.loads(texts["env/system_info.json"]) if facts.host.is_known else saved.system,
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
        if text is None:
            yield Row("blocking", "script", name, "saved", "not in the snapshot: start a new run with its command line")
        elif SECRET in text:
            yield Row("blocking", "secret", name, SECRET, "not saved: start a new run with its command line")
    for needed in plan.requires:
        if not is_here(needed, environ):
            fix = {"file": "put it back", "module": "install it"}.get(needed.kind, needed.fix)
            yield Row("blocking", needed.kind, needed.name, "there", f"missing: {fix}")
    for plugin in plan.hook_plugins:
        if not plugin.is_file and not is_here(Requirement("module", plugin.target.partition(":")[0], ""), environ):
            yield Row("blocking", "hooks", plugin.source, plugin.target, "not installed")
    if plan.worker and not is_here(Requirement("module", plan.worker.module, ""), environ):
        yield Row("blocking", "backend", plan.framework or plan.task, plan.worker.module, "not installed")


def _texts(plan: Plan) -> Iterator[tuple[str, str | None]]:
    """What a run is started with and no environment carries: in a snapshot a secret is missing from it.
    None: the file is missing, or cannot be read.
    """
    yield "the worker's arguments", " ".join(plan.worker.args) if plan.worker else ""
    yield from ((step.name, " ".join(step.argv)) for step in plan.steps if step.kind == "prepare")
    yield from ((file.path, file.text) for file in plan.files)
    for step in plan.steps:
        if step.script:
            yield step.name, _text_of(step.script)
    yield from ((f"hooks of {p.source}", _text_of(p.target)) for p in plan.hook_plugins if p.is_file)


def _text_of(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace", opener=regular) as file:
            return file.read()
    except OSError:
        return None


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


def check(found: Report, replay: Replay, switches: argparse.Namespace) -> int | None:
    """Say what equals and what differs; the exit code where that is all, None where the replay continues.

    Raises:
        MachineError: it cannot be the same run, and `--force` was not given.
    """
    if switches.check and switches.json:
        sys.stdout.write(json.dumps(_plain(found, replay), indent=1) + "\n")
    else:
        (sys.stdout if switches.check else sys.stderr).write(_text(found, replay))
    if switches.check:
        return 3 if found.blocking else 0
    if found.blocking and not switches.force:
        why = "\n".join(f"{row.name}: {row.before} then, here {row.after}" for row in found.blocking)
        may_start = all(row.category == "hardware" for row in found.blocking)
        homes = (home_of("backends", row.name) for row in found.blocking if row.category == "backend")
        secrets = " ".join(f"{row.name}=..." for row in found.blocking if row.category == "secret")
        fix = (f"export {secrets}" if secrets else "replay it elsewhere") + ", or start it with --force" * may_start
        fix += "".join(f"\nor install it here: {how_to_install(home)}" for home in homes if home)
        raise MachineError("this cannot be the same run", why=why, fix=fix)
    return None


def _plain(found: Report, replay: Replay) -> dict[str, object]:
    run, differences = replay.saved.directory, [row._asdict() for row in found.rows]
    return {"run": run, "replayable": not found.blocking, "equal": list(found.equal), "differences": differences}


def _text(found: Report, replay: Replay) -> str:
    known = replay.saved.record
    step, loss = known.last_step, known.last_loss
    reached = f", step {step}, loss {loss:.4f}" if step is not None and loss is not None else ""
    lines = [f"primus: replay of {replay.saved.directory} ({known.status or 'unknown'}{reached})"]
    lines.append(f"  {'equal':<9} {', '.join(found.equal) or 'nothing'}")
    new = [row for row in found.rows if row.category == "packages" and not row.before]
    folded = new if len(new) > 3 else []  # a person wants to know of a few, and of many that there are many
    for row in (row for row in found.rows if row not in folded):
        none = "not installed" if row.category == "packages" else "not set"
        change = f"{_short(row.before) or none} → {_short(row.after) or none}"
        lines.append(f"  {row.severity:<9} {row.category}: {row.name}: {change}")
    if folded:
        names = ", ".join(row.name for row in folded[:3])
        lines.append(f"  {folded[0].severity:<9} packages: {len(folded)} new here: {names}, ... (all: --json)")
    return "\n".join(map(printable, lines)) + "\n"


def _short(text: str) -> str:
    line = text.replace("\n", " ")
    return line if len(line) <= 80 else line[:77] + "..."
