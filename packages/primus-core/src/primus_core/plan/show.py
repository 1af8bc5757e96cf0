"""A plan as text: a shell script with the reasons as comments, so that pasting it does the same."""

from __future__ import annotations

import shlex

from primus_core.journal import RECORD
from primus_core.plan.plan import Distributed, Plan, PlannedFile, Step, Variable
from primus_machine.files import plain_json
from primus_machine.secrets.names import SECRET
from primus_machine.text import printable

__all__ = ["UNWATCHED", "script"]

UNWATCHED = "unwatched"
"""The status of a run that was started by pasting this script."""
_FILE_END = "PRIMUS_END_OF_FILE"


def script(plan: Plan, *inner: Plan) -> str:
    """The dry run: every comment explains, every command is one line that a shell takes as it stands.

    What the layers `inner` do, the outermost one's command does: they are shown as comments.
    """
    own = _script(plan)
    hops = (
        f"# --- inside {outer.runtime}, there:\n{_commented(_script(hop))}"
        for outer, hop in zip((plan, *inner), inner, strict=False)
    )
    return "\n".join((own, *hops))


def _commented(text: str) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in text.splitlines())


def _script(plan: Plan) -> str:
    place = plan.distributed
    head = [
        f"# primus {plan.primus_version}: {plan.task} with {plan.runtime}. This is a dry run: nothing was done.",
        f"# run        {plan.place.run_id}",
        f"# directory  {plan.place.directory}",
        f"# ranks      {_ranks(place)}",
        *(f"# starts     {shlex.join(step.argv)}" for step in plan.steps[-1:]),
    ]
    head += [f"# note       {note}" for note in plan.notes]
    head += [
        f"# hooks      {plugin.target} ({plugin.source}), in a process beside the run" for plugin in plan.hook_plugins
    ]
    head += [
        f"# afterwards {shlex.join(step.argv)} EXIT_CODE ({step.name}), if the run fails" for step in plan.after_failure
    ]
    head += dict.fromkeys(f"# needs      {r.kind} {r.name}" for r in plan.requires)  # two may need the same
    parts = ["\n".join([printable(line) for line in head]), _variables(plan.environment), _files(plan)]
    parts += [_step(step, plan) for step in plan.steps]
    return "\n\n".join(part for part in parts if part) + "\n"


def _ranks(place: Distributed) -> str:
    if place.tentative:
        return f"unknown until the scheduler has chosen nodes ({place.nnodes} of them, as far as known)"
    return f"{place.world_size} ({_where(place)})"


def _where(place: Distributed) -> str:
    each = f"{place.gpus_per_node} per node"
    if place.one_per_node:
        each = f"one per node, for {place.gpus_per_node} device{'s' if place.gpus_per_node > 1 else ''}"
    node = f"node {place.node_rank} of {place.nnodes}, {each}"
    return f"{node}, master {place.master_addr}, port {place.master_port}"


def _variables(variables: tuple[Variable, ...]) -> str:
    if not variables:
        return ""
    width = max(len(v.name) for v in variables)
    rows = []
    for v in variables:
        rows.append(f"#   {v.name:<{width}}  {SECRET if v.secret else v.value}  ({_reason(v)})")
        rows += [f"#     {flag.name}={flag.value}  ({_reason(flag)})" for flag in v.flags]
    return "\n".join(["# environment", *(printable(row) for row in rows)])


def _reason(variable: Variable) -> str:
    over = ", ".join(f"{SECRET if variable.secret else value} ({origin})" for value, origin in variable.overrode)
    return ": ".join(filter(None, (variable.origin, variable.why))) + (f"; instead of {over}" if over else "")


def _files(plan: Plan) -> str:
    files = [*plan.files, *([] if plan.place.joined else [_record(plan)])]
    folders = sorted({_join(plan, f.path).rpartition("/")[0] for f in files} | {plan.place.directory + "/logs"})
    return "\n".join(["# files", f"mkdir -p {shlex.join(folders)}", *(_file(plan, file) for file in files)])


def _record(plan: Plan) -> PlannedFile:
    """The record of a run that this script starts: nobody watches it, so that nobody will know how it ended."""
    known = {
        "run_id": plan.place.run_id,
        "status": UNWATCHED,
        "command": plan.command,
        "task": plan.task,
        "runtime": plan.runtime,
        "framework": plan.framework,
        "model": plan.model,
        "world_size": plan.distributed.world_size,
        "primus_version": plan.primus_version,
    }
    return PlannedFile(RECORD, plain_json.dumps({name: value for name, value in known.items() if value}, indent=1))


def _file(plan: Plan, file: PlannedFile) -> str:
    if file.source:
        command = "ln -s" if file.is_link else "cp -p"
        return f"{command} -- {shlex.quote(file.source)} {shlex.quote(_join(plan, file.path))}"
    end = _FILE_END
    while end in file.text:
        end += "_"
    text = file.text if file.text.endswith("\n") else file.text + "\n"
    return f"cat > {shlex.quote(_join(plan, file.path))} <<'{end}'\n{text}{end}"


def _join(plan: Plan, path: str) -> str:
    return f"{plan.place.directory}/{path}"


def _step(step: Step, plan: Plan) -> str:
    settings = [word for name in plan.unset for word in ("-u", name)]
    settings += [f"{v.name}={v.value}" for v in plan.environment if not v.secret]
    secrets = [v.name for v in plan.environment if v.secret]
    ranks = f", {step.ranks} rank{'s' if step.ranks != 1 else ''}" if step.ranks else ""
    lines = [f"# step: {step.name}{ranks}"]
    if step.script:
        lines.append(
            "# Primus adds the output env.NAME=VALUE and extra.name=value of this script to the plan; a shell does not"
        )
    lines += [f"# export {name} yourself: its value is a secret" for name in secrets]
    lines.append(f"cd {shlex.quote(step.cwd)} && env {shlex.join([*settings, *step.argv])}")
    if names := ", ".join(flag.name for flag in step.added if flag.loss):
        lines.append(f"# added by Primus, and left out if {step.argv[0]} does not support it: {names}")
    if step.scheduler and step.scheduler.leaves_out:
        lines.append("# a restart excludes failed nodes")
    return "\n".join(lines)
