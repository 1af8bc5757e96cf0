"""What Slurm says of this process, of jobs, and of a step that ended."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from primus_machine import nodelist
from primus_machine.errors import RequestError

if TYPE_CHECKING:
    from primus_core.contracts.scheduler import Job, Printed, Scheduler, Target
    from primus_core.journal.record import RunRecord
    from primus_machine.host import HostRoot

__all__ = ["SLURM"]

_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "NNODES": ("SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "NODE_RANK": ("SLURM_NODEID", "SLURM_PROCID"),
    "GPUS_PER_NODE": ("SLURM_GPUS_ON_NODE",),
}
_NODE_LISTS = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
_NUMBERS = {"step_id": "SLURM_STEP_ID", "node": "SLURMD_NODENAME", "restart": "SLURM_RESTART_COUNT"}
_TROUBLES_S = 20.0
"""So long a controller may take that has just lost a node."""

# What srun and slurmstepd print (slurm/src/srun/libsrun/launch.c, src/slurmd/slurmstepd/req.c).
# As text: `re` compiles what is asked, and every dry run loads this module.
_LOST = r"Node failure on (\S+)"
_CANCELLED = r"\*\*\* (?:STEP|JOB) \S+ ON \S+ CANCELLED AT \S+ DUE TO ([A-Z ]+)"
_EXITED = r"srun: error: (\S+): task \d+: Exited with exit code (\d+)"
_CANCELLED_FIRST = r"\*\*\* (?:STEP|JOB) \S+ ON \S+ CANCELLED AT \S+ \*\*\*|(srun: error: \S+: tasks? [\d,-]+: )"
"""srun ends a step whose task has failed with the same words, behind those about that task."""
_WITHDRAWN = "srun: Job has been cancelled"
_QUEUED = r"(?m)^srun: job ([0-9]+) queued and waiting for resources"
_HEAD_BYTES = 4096


class Slurm:
    """Scheduler `slurm`."""

    name = "slurm"
    title = "Slurm"
    launch = "slurm srun -N {nodes}"
    families = ("SLURM_", "SLURMD_")
    logs = "logs/slurm_*.log"
    variables = _VARIABLES

    def started(self, environ: Mapping[str, str]) -> bool:
        """In the shell that `salloc` opens it did not: one node is meant."""
        return bool(_job_id(environ) and {"SLURM_NODEID", "SLURM_PROCID"} & environ.keys())

    def refuse(self, environ: Mapping[str, str]) -> None:
        """Several tasks of one node, several nodes of no job, and a job script that starts no step on the others."""
        _refuse_further_tasks(environ)
        _refuse_half_a_job(environ)
        _refuse_script_alone(environ)

    def numbers(self, environ: Mapping[str, str]) -> Mapping[str, str]:
        """Those of the job, the step and the node."""
        known = {"job_id": _job_id(environ), **{key: environ.get(name, "") for key, name in _NUMBERS.items()}}
        return {name: value for name, value in known.items() if value}

    def nodes(self, environ: Mapping[str, str]) -> str:
        """The list of the step, else of the job."""
        return environ.get(_list_of_nodes(environ), "") if self.started(environ) else ""

    def hosts(self, environ: Mapping[str, str]) -> Iterator[str]:
        """As `scontrol show hostnames` has them."""
        return nodelist.hosts(self.nodes(environ), _list_of_nodes(environ))

    def port(self, environ: Mapping[str, str]) -> tuple[int, str] | None:
        """Jobs that share a node, and steps of one job, have different ones; the kernel hands out none (32768-)."""
        job, step = _job_id(environ), environ.get("SLURM_STEP_ID", "")
        if not (self.started(environ) and re.fullmatch("[0-9]{1,18}", job)):
            return None
        number = int(job) + 997 * (int(step) if re.fullmatch("[0-9]{1,9}", step) else 0)
        return 20000 + number % 10000, "from the numbers of Slurm's job and step"

    def narrowed(self, cpus: int, environ: Mapping[str, str]) -> str:
        """By the variables of the step."""
        from primus_slurm import steps

        return steps.narrowed(cpus, environ)

    def waits(self, environ: Mapping[str, str]) -> str:
        """What scontrol says of the job's steps: srun itself says nothing for a minute."""
        from primus_slurm import queries, steps

        answer = queries.run(["scontrol", "--oneliner", "show", "step", _job_id(environ)], environ)
        running = ", ".join(steps.running_instead(answer.out)) if answer else ""
        return f"{running} of its job must end first, or share its CPUs: primus slurm srun --overlap" if running else ""

    def look(self, number: str, environ: Mapping[str, str], cluster: str = "") -> Job | None:
        """What scontrol says, or squeue."""
        from primus_slurm import queries

        return queries.look(number, environ, cluster)

    def ask(self, numbers: Iterable[str], environ: Mapping[str, str], cluster: str = "") -> Mapping[str, Job]:
        """What squeue says."""
        from primus_slurm import queries

        return queries.ask(numbers, environ, cluster)

    def job_of(self, directory: str) -> str:
        """The job that `primus slurm srun` made: before its nodes begin, srun's own words tell it."""
        from primus_machine.files.atomic import regular

        try:
            with open(f"{directory}/logs/slurm.log", encoding="utf-8", errors="replace", opener=regular) as file:
                queued = re.search(_QUEUED, file.read(_HEAD_BYTES))
        except OSError:
            return ""
        return queued[1] if queued else ""

    def target(self, directory: str, job: Job, known: RunRecord, host: HostRoot) -> Target | None:
        """The job that was submitted; of one that srun made, the ranks' step."""
        from primus_slurm.targets import target_of

        return target_of(directory, job, known, host)

    def version(self, program: str, environ: Mapping[str, str]) -> Mapping[str, str]:
        """What `srun --version` says."""
        from primus_slurm import queries

        return queries.version(program, environ)

    def submitted(self, lines: Iterable[str]) -> tuple[str, str]:
        """What sbatch says of the job."""
        from primus_slurm import queries

        return queries.job_in(lines)

    def printed(self, text: str) -> Printed:
        """What srun and slurmstepd print."""
        from primus_core.contracts.scheduler import Printed
        from primus_slurm.queries import REASONS

        reasons = (REASONS.get(word.strip()) for word in re.findall(_CANCELLED, text))
        exited = tuple((host, int(code)) for host, code in re.findall(_EXITED, text))
        lost = tuple(dict.fromkeys(re.findall(_LOST, text)))
        first = re.search(_CANCELLED_FIRST, text)
        is_cancelled = bool(first and not first[1])
        return Printed(next(filter(None, reasons), ""), lost, _WITHDRAWN in text, exited, is_cancelled)

    def without(self, command: Sequence[str], nodes: Sequence[str]) -> Sequence[str]:
        """Of several `--exclude`, srun takes the last: what a person leaves out is in it, unless a file names it."""
        from primus_slurm.flags import ENV, Options

        end = command.index(ENV)
        given = Options("srun").read(command[1:end], {}).given.get("exclude", "")
        named = [given] if given and "/" not in given else []
        return (*command[:end], f"--exclude={','.join([*named, *nodes])}", *command[end:])

    def troubles(self, nodes: Sequence[str], environ: Mapping[str, str]) -> Mapping[str, str]:
        """What sinfo says of them."""
        from primus_slurm import queries

        words = ["sinfo", "--noheader", "--Node", f"--nodes={','.join(nodes)}", "--format=%N|%T|%E"]
        answer = queries.run(words, environ, _TROUBLES_S)
        rows = (line.split("|", 2) for line in answer.out.splitlines() if line.count("|") > 1) if answer else ()
        found = {name: _trouble(state, reason) for name, state, reason in rows}
        return {name: trouble for name, trouble in found.items() if trouble}

    def requeue(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        """`scontrol requeue` ends this process, too."""
        from primus_slurm import queries

        queries.run(command, environ)


def _trouble(state: str, reason: str) -> str:
    if not (state.startswith(("down", "fail", "unknown")) or state.endswith("*")):
        return ""
    why = "" if reason in ("none", "None", "") else f", {reason}"
    return f"{state.rstrip('*')}{', not responding' if state.endswith('*') and not why else why}"


def _list_of_nodes(environ: Mapping[str, str]) -> str:
    """The variable with the nodes of the step, else of the job; empty: there is none."""
    return next((name for name in _NODE_LISTS if environ.get(name)), "")


def _job_id(environ: Mapping[str, str]) -> str:
    """The number of the job, which had another name in early versions; empty: this is none."""
    return environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID", "")


def _refuse_script_alone(environ: Mapping[str, str]) -> None:
    """A job script runs on the first node: without a step, it would wait there for the others until its time is up."""
    nodes = environ.get("SLURM_JOB_NUM_NODES") or environ.get("SLURM_NNODES", "1")
    is_script = environ.get("ENVIRONMENT") == "BATCH" and not environ.get("SLURM_STEP_ID")
    if _job_id(environ) and is_script and nodes != "1" and not ({"NNODES", "NODE_RANK"} & environ.keys()):
        raise RequestError(
            f"this is one of {nodes} nodes of the job, and nothing starts Primus on the others",
            why="a job script runs on the first node alone",
            fix="start it on all of them: primus slurm srun -- ... instead of primus direct -- ...\n"
            "or run on this node alone: NNODES=1 before the command",
        )


def _refuse_half_a_job(environ: Mapping[str, str]) -> None:
    """Variables that speak of several nodes, but of no job: to take or to ignore them would surprise somebody."""
    if _job_id(environ) or environ.get("NNODES", "").strip():
        return
    counts = {name: environ[name] for name in (*_VARIABLES["NNODES"], *_NODE_LISTS) if environ.get(name, "").strip()}
    for name, value in counts.items():
        if len([*islice(nodelist.hosts(value, name), 2)]) > 1 if name in _NODE_LISTS else value.strip() != "1":
            raise RequestError(
                f"{name} is '{value}', but SLURM_JOB_ID is not set",
                why="it names several nodes, but this process does not belong to a Slurm job",
                fix=f"unset {name} to run on this node alone, or set NNODES, NODE_RANK and MASTER_ADDR",
            )


def _refuse_further_tasks(environ: Mapping[str, str]) -> None:
    """Under srun with several tasks per node, each would start all the ranks of its node."""
    local = environ.get("SLURM_LOCALID", "0") if _job_id(environ) else "0"
    if local != "0" and "NODE_RANK" not in environ:
        raise RequestError(
            f"SLURM_LOCALID is {local}: srun started several tasks on this node",
            why="one `primus direct` per node starts all ranks of the node",
            fix=f"srun --ntasks={environ.get('SLURM_NNODES', '1')} --ntasks-per-node=1 primus direct ...",
        )


SLURM: Scheduler = Slurm()
