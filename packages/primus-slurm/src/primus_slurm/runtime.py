"""Run on a Slurm cluster, with srun or sbatch.

primus slurm srun -N 2 -- train pretrain --config exp.yaml
primus slurm sbatch -N 2 -p gpu -t 4:00:00 -- container --image IMG -- train pretrain --config exp.yaml
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from primus_core.plan.plan import AddedFlag, PlannedFile, Requirement, RunPlace, SchedulerStep, Step
from primus_core.plugins.outer import OuterCall, OuterPlan
from primus_core.request.arguments import Parser, duration, flags_of, whole_number
from primus_machine import packages
from primus_machine.errors import RequestError
from primus_machine.secrets.redaction import refuse_secrets
from primus_machine.units import counted
from primus_slurm.asked import KILL, Asked, Misspelt, name_of, refuse_flags, refuse_several_tasks
from primus_slurm.flags import COUNT, ENV, LOSSES, TASKS, Options, gpus_of_node, nodes_of, warned_at_once
from primus_slurm.steps import wishes_of_job

__all__ = ["SCRIPT", "SLURM"]

COMMANDS = ("srun", "sbatch")
SCRIPT = "submit.sh"
"""The job script, in the run directory."""
UNKNOWN_HOST = "first-node-of-the-job"
"""Stands for the master's name in a plan that is made before Slurm has chosen nodes."""

_WARNING_S = 60
"""So long before the time limit a job that may be started again is told that it comes. Slurm may tell it a minute
earlier still (`man sbatch`, --signal).
"""
_FIX = "run this where Slurm's commands are, or without Slurm: primus direct -- ..."
_PARSABLE = "--parsable"
"""Look-alikes of sbatch do not know it, and submit without it."""
_APPEND = "--open-mode=append"
_REFUSALS = (1, 126, 127, 255)
"""Exit codes of srun and sbatch that are Slurm's, where no task has begun."""


class Slurm:
    """Runtime `slurm`."""

    name = "slurm"
    holds = frozenset({"container", "direct"})
    epilog = """examples:
  primus slurm srun -N 2 -- train pretrain --config exp.yaml
  primus slurm sbatch -N 8 -p gpu -t 4:00:00 -o logs/train_%j.log -- train pretrain --config exp.yaml
  primus slurm srun -N 2 --gpus-per-node=8 -- container --image IMG -- train pretrain --config exp.yaml
  primus slurm --dry-run sbatch -N 4096 -- train pretrain --config exp.yaml

Primus passes all other flags to srun or sbatch unchanged. Set defaults for them in `slurm:` of primus.yaml."""

    def add_arguments(self, parser: Parser) -> None:
        """Which command; all that Primus does not know is Slurm's."""
        parser.add_argument(
            "command",
            nargs="?",
            choices=COMMANDS,
            default="srun",
            help="srun: wait for the end of the job (default); sbatch: submit a job",
        )
        parser.add_argument(
            "--follow",
            action="store_true",
            help="with sbatch (srun does it anyway): show the job's log until its end, and return its exit code",
        )
        parser.add_argument(
            "--max-restarts",
            type=whole_number,
            metavar="N",
            help="restart failed nodes; give up after N consecutive restarts without progress (default: 0)",
        )
        parser.add_argument(
            "--rendezvous-timeout",
            type=duration,
            metavar="DURATION",
            help="wait this long for all nodes before ranks start: 30s, 10m; 0: no rendezvous (default: 10m)",
        )
        parser.add_argument(
            "--spare-nodes",
            type=whole_number,
            default=0,
            metavar="K",
            help="keep K nodes of the job in reserve, to replace failed ones (default: 0)",
        )
        parser.usage = "primus slurm [srun|sbatch] [Slurm's flags] -- [container ... --|direct ... --] <task>"
        parser.rest_to("flags", checked=False, split=_split)

    def inside(self, args: argparse.Namespace, environ: Mapping[str, str]) -> Mapping[str, str]:
        """What Slurm will say on the first node, as far as the flags tell it."""
        if "NODE_RANK" in environ:
            raise RequestError(
                f"NODE_RANK is set here, to '{environ['NODE_RANK']}'",
                why="every node of the job would use this rank",
                fix="unset NODE_RANK",
            )
        asked = Asked(args, environ)
        job = environ if asked.in_job else {}
        nodes, certain = nodes_of(asked.values, job)
        working = _working(nodes, args, certain=certain)
        _refuse_other_count(environ, working, certain=certain)
        gpus = gpus_of_node(asked.values) or job.get("SLURM_GPUS_ON_NODE", "")
        hosts = asked.values.get("nodelist") or job.get("SLURM_JOB_NODELIST", "")
        return {
            **dict.fromkeys((name for name in environ if name.startswith("SLURM_")), ""),
            "SLURM_JOB_ID": job.get("SLURM_JOB_ID", "unknown"),
            "SLURM_NNODES": str(working),
            "SLURM_NODEID": "0",
            "SLURM_STEP_ID": job.get("SLURM_STEP_ID") or "0",
            "SLURM_LOCALID": "0",
            "SLURM_JOB_NODELIST": hosts if hosts and "/" not in hosts else UNKNOWN_HOST,
            "SLURM_GPUS_ON_NODE": gpus if certain else "",
        }

    def wrap(self, call: OuterCall) -> OuterPlan:
        """The inner command behind srun, or in a job script."""
        asked = Asked(call.args, call.facts.environ, takes_over=call.takes_over)
        refuse_flags(asked)
        _refuse_in_each_task(call.facts.environ)
        refuse_several_tasks(asked)
        _require_job(call.args, asked)
        parser = Parser(prog="primus slurm")
        self.add_arguments(parser)
        misspelt = Misspelt(asked, flags_of(parser))
        if call.args.command == "sbatch":
            return _sbatch(call, asked, misspelt)
        return _srun(call, asked, misspelt)  # which follows it anyway


def _refuse_in_each_task(environ: Mapping[str, str]) -> None:
    """`srun -N 2 primus slurm srun ...`: each task of that step would start the whole run."""
    tasks = environ.get("SLURM_STEP_NUM_TASKS", "1")
    if environ.get("SLURM_STEP_ID") and tasks != "1":
        raise RequestError(
            f"this is one of {tasks} tasks of a step, and each of them would start the run",
            fix="leave out the srun before it, or have it start the node's part alone: srun ... primus direct -- ...",
        )


def _refuse_other_count(environ: Mapping[str, str], nodes: int, *, certain: bool) -> None:
    """With another number in NNODES, each node would wait for nodes that the job does not have, or leave some out."""
    wanted = environ.get("NNODES", "").strip()
    if certain and wanted and wanted != str(nodes):
        raise RequestError(
            f"NNODES is '{wanted}', but {counted(nodes, 'node')} of the job will run ranks",
            why="the nodes wait for NNODES nodes before they start",
            fix=f"unset NNODES, or request as many nodes: -N {wanted}" if COUNT.fullmatch(wanted) else "unset NNODES",
        )


def _split(parser: Parser, words: Sequence[str]) -> tuple[list[str], Sequence[str]]:
    """The words of Primus, and Slurm's flags."""
    actions = [action for action in parser.actions() if action.dest != "help"]
    own = {flag: action.nargs != 0 for action in actions for flag in action.option_strings}
    rest, kept = list(words), []
    while rest and rest[0].partition("=")[0] in own:
        takes_next = own[rest[0].partition("=")[0]] and "=" not in rest[0]
        kept += [rest.pop(0), *([rest.pop(0)] if takes_next and rest else [])]
    command = rest.pop(0) if rest and rest[0] in COMMANDS else COMMANDS[0]
    flags = Options(command).read(rest, own, parser.segment)
    return [*kept, *flags.own, command], flags.passed


def _srun(call: OuterCall, asked: Asked, misspelt: Misspelt) -> OuterPlan:
    """One Primus on each node, which starts the node's ranks."""
    env = [f"{variable.name}={variable.value}" for variable in call.variables if not variable.secret]
    name = [] if asked.in_job or "jobid" in asked.values else asked.not_given([f"--job-name={_jobname_of(call.place)}"])
    own = [*name, *_shape(asked, call.args)]
    flags = _flags(own, asked)
    restarts, environ = _restarts(call), call.facts.environ
    batch = asked.in_job and "SLURM_NODEID" in environ  # in the shell of `salloc` it is not set
    words = (ENV, *env, call.facts.python, "-m", "primus_core", *call.inner)
    ends = (call.facts.python, "-m", "primus_slurm.stop", call.place.directory)
    step = Step(
        "srun",
        ("srun", *flags, *words),
        call.facts.cwd,
        kind="worker",
        advice=misspelt.advice(),
        stop=(*ends, "step", "TERM"),  # srun itself would kill the ranks at once
        cleanup=(*ends, "step" if asked.in_job or "jobid" in asked.values else "job"),  # where srun was killed
        scheduler=SchedulerStep(
            "slurm",
            together=asked.values.get(KILL, "0") != "0",
            spares=call.args.spare_nodes,
            leaves_out=bool(call.args.spare_nodes),
            requeue=("scontrol", "requeue", environ["SLURM_JOB_ID"]) if batch and restarts else (),
            takes_over=call.takes_over,
        ),
        refusals=_REFUSALS,
        added=_added(own, asked),
    )
    steps = (*_folders(call, asked), step)
    needs = (Requirement("command", "srun", _FIX),)
    return OuterPlan(steps, requires=needs, notes=_notes(asked, own, misspelt), max_restarts=restarts)


def _notes(asked: Asked, own: Sequence[str], misspelt: Misspelt) -> tuple[str, ...]:
    """What to know of the flags. `own`: those that Primus adds."""
    added = next((word.partition("=")[2] for word in own if name_of(word) == "signal"), "")
    early = warned_at_once(asked.values.get("time", ""), asked.values.get("signal") or added)
    return (*misspelt.notes(), *filter(None, [early]))


def _flags(own: Sequence[str], asked: Asked) -> list[str]:
    """Return all flags of the command. None may hold a secret: everybody on a machine can read a command line."""
    flags = [*own, *asked.defaults, *asked.flags.passed]
    refuse_secrets(flags, fix="export it: Slurm passes the environment on")
    return flags


def _added(own: Sequence[str], asked: Asked) -> tuple[AddedFlag, ...]:
    """Return the flags that Primus adds: those of this command, and the defaults of the package."""
    words = [*own, *(word for word in asked.defaults if name_of(word) == KILL)]
    return tuple(AddedFlag(word, LOSSES[word.partition("=")[0]]) for word in words)


def _restarts(call: OuterCall) -> int:
    return call.max_restarts if call.args.max_restarts is None else int(call.args.max_restarts)


def _require_job(args: argparse.Namespace, asked: Asked) -> None:
    if args.spare_nodes and args.command == "srun" and not asked.in_job:
        raise RequestError(
            "--spare-nodes needs a job that survives a failed node",
            why="a lone srun ends with the failed node, and a new one gets other nodes",
            fix=f"primus slurm --spare-nodes {args.spare_nodes} sbatch ..., or the same within salloc",
        )


def _working(nodes: int, args: argparse.Namespace, *, certain: bool = True) -> int:
    """Of the job's nodes, those that work: the others stand by."""
    if certain and args.spare_nodes >= nodes:
        raise RequestError(
            f"--spare-nodes {args.spare_nodes} of {nodes} nodes leaves no node to train on",
            fix="request more nodes: -N",
        )
    return max(nodes - int(args.spare_nodes), 1)


def _shape(asked: Asked, args: argparse.Namespace) -> list[str]:
    """One task on each node, whatever shape the allocation around it was asked for."""
    values, environ = asked.values, asked.environ
    if set(TASKS) & values.keys():
        return []
    wanted = ["--ntasks-per-node=1"]
    if asked.in_job:
        nodes = _working(nodes_of(values, environ)[0], args)
        shape = [f"--nodes={nodes}", f"--ntasks={nodes}", *wanted]  # srun would take them from the job's
        wanted = asked.options.not_given([*shape, *wishes_of_job(environ)], asked.flags.given)
    return [word for word in wanted if name_of(word) not in asked.disabled]


def _sbatch(call: OuterCall, asked: Asked, misspelt: Misspelt) -> OuterPlan:
    """The job script, and the command that submits it."""
    place = call.place
    log = f"--output={place.directory.replace('%', '%%')}/logs/slurm_%j.log"
    whole = os.path.join(call.facts.cwd, asked.values.get("output", place.directory))
    if "\\" in os.path.dirname(whole):
        raise RequestError(
            f"Slurm cannot write a log below '{os.path.dirname(whole)}'",
            why="Slurm interprets a backslash in the path of a log",
            fix="name a log elsewhere: -o /path/%j.log",
        )
    append = [] if "output" in asked.values else [_APPEND]  # a site may put any job back into the queue
    own = [_PARSABLE, f"--job-name={_jobname_of(place)}", log, *append, *_resilience(call)]
    own = asked.not_given(own)
    flags = _flags(own, asked)
    script = PlannedFile(SCRIPT, _script(call, asked))
    argv = ("sbatch", *flags, f"{place.directory}/{SCRIPT}")
    submit = Step("sbatch", argv, call.facts.cwd, kind="submit", scheduler=SchedulerStep("slurm"),
                  advice=misspelt.advice(), refusals=_REFUSALS, added=_added(own, asked))  # fmt: skip
    watch = (call.facts.python, "-m", "primus_slurm.follow", place.directory)
    follow = [Step("follow", watch, call.facts.cwd, kind="worker")] if call.args.follow else []
    return OuterPlan(
        (*_folders(call, asked), submit, *follow),
        files=(script,),
        requires=(Requirement("command", "sbatch", _FIX),),
        notes=_notes(asked, own, misspelt),
    )


def _resilience(call: OuterCall) -> list[str]:
    """The flags of a job that is to go on after a failure, a preemption, or its time limit."""
    again = ["--requeue", _APPEND, f"--signal=B:USR2@{_WARNING_S}"] if _restarts(call) else []
    return again + (["--no-kill"] if call.args.spare_nodes else [])


def _jobname_of(place: RunPlace) -> str:
    return f"primus-{os.path.basename(place.link) or place.run_id}"


def _script(call: OuterCall, asked: Asked) -> str:
    """The job script. Its length does not depend on the number of nodes; nothing in it is secret."""
    joined = [f"export {variable.name}={shlex.quote(variable.value)}" for variable in call.of_job]
    words = (call.facts.python, "-m", "primus_core", *call.again(*_in_job(call.args)))
    lines = (
        "#!/bin/bash",
        f"# Run {call.place.run_id}: the script of its job. You can run it by hand in an allocation.",
        f"# Written by Primus {packages.version_of('primus-core')}.",
        *joined,
        *([f"cd -- {shlex.quote(call.facts.cwd)} || exit 3"] if "chdir" not in asked.values else []),
        *_links(call.place, asked),
        f"exec {shlex.join(words)}",
    )
    return "".join(f"{line}\n" for line in lines)


def _links(place: RunPlace, asked: Asked) -> Iterator[str]:
    """Lines that make a link in the run directory to each log that is written elsewhere: the job knows its name."""
    for name, number in (("output", 1), ("error", 2)):
        if name in asked.values:
            link = f"{shlex.quote(place.directory)}/logs/slurm_${{SLURM_JOB_ID}}_{name}.log"
            yield f"log=$(readlink /proc/$$/fd/{number}) link={link}"
            yield '[ ! -f "$log" ] || [ -e "$link" ] || ln -s -- "$log" "$link"'


def _in_job(args: argparse.Namespace) -> tuple[str, ...]:
    """The layer that starts the inner command on every node of the job."""
    restarts = () if args.max_restarts is None else ("--max-restarts", str(args.max_restarts))
    spares = ("--spare-nodes", str(args.spare_nodes)) if args.spare_nodes else ()
    return ("slurm", *restarts, *spares, "srun")


def _folders(call: OuterCall, asked: Asked) -> tuple[Step, ...]:
    """A step that makes the folders of the log files: Slurm makes none, and the job would fail without a word.

    Raises:
        RequestError: a folder is to have the number of the job, which nobody knows yet.
    """
    job, folders = asked.values.get("job-name") or _jobname_of(call.place), list[str]()
    for name in ("output", "error"):
        folder = os.path.dirname(asked.values.get(name, ""))
        if not asked.in_job:  # which has its number and name already, and maybe a folder called so
            folder = re.sub("(?<!%)%x", lambda _: job, folder)
            if number := re.search(r"(?<!%)%\d*[AJj]", folder):
                path = os.path.join(folder[: number.start()], "%j.log")
                raise RequestError(
                    f"Slurm cannot write a log below '{folder}'",
                    why=f"it makes no folders, and {number[0]} is not known before the job is submitted",
                    fix=f"have it in the file's name alone: --{name}={path}",
                )
        folders.append(os.path.dirname(f"{folder}/".partition("%")[0]))
    wanted = tuple(dict.fromkeys(folder for folder in folders if folder.strip("/")))
    start = os.path.normpath(os.path.join(call.facts.cwd, asked.values.get("chdir", "")))
    return (Step("log folder", ("mkdir", "-p", "--", *wanted), start),) if wanted else ()


SLURM = Slurm()
