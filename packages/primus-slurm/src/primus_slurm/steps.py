"""A launch within a step of Slurm: the CPUs that its job has, and why its own step waits.

The variables of a step describe that step, and srun takes them as wishes: `SLURM_CPUS_PER_TASK`, `SLURM_CPU_BIND`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["cpus_of_node", "narrowed", "running_instead", "step_around", "wishes_of_job"]

_LAST_STEP = 0xFFFFFFF0
"""Numbers from here on are no steps that somebody asked for: the shell of `salloc`, the batch script."""
_CPUS, _BIND = "SLURM_CPUS_PER_TASK", "SLURM_CPU_BIND"
_THREADS = ("SLURM_HINT", "SLURM_THREADS_PER_CORE")
"""With one of them, a task has fewer CPUs than the job is counted with."""
_STEP = re.compile(r"(?m)^StepId=(\d+\.(\d+)) .*? State=RUNNING .*? Name=(.*?) Network=")
_WAITING = re.compile(r"(?m)^StepId=\d+\.T[BD]{2} .*? State=PENDING ")


def step_around(environ: Mapping[str, str]) -> str:
    """Return the number of the step that this process is in; empty: it is in none that somebody started by srun."""
    number = environ.get("SLURM_STEP_ID") or environ.get("SLURM_STEPID", "")
    return number if number.isdecimal() and int(number) < _LAST_STEP else ""


def cpus_of_node(environ: Mapping[str, str]) -> int:
    """Return how many CPUs the job has on each of its nodes, or on the smallest; 0: it does not say."""
    counts = re.findall(r"(\d+)(?:\(x\d+\))?", environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
    return min(map(int, counts), default=0)


def wishes_of_job(environ: Mapping[str, str]) -> list[str]:
    """Return the flags with which a step has all CPUs of its job: the one around it does not need its own."""
    around, per_task = step_around(environ), environ.get(_CPUS, "")
    cpus = 0 if any(environ.get(name) for name in _THREADS) else cpus_of_node(environ)
    # Since 22.05 srun does not take this from the job's variables, and the ranks would share one CPU.
    flags = [f"--cpus-per-task={cpus or per_task}"] if per_task or (around and cpus) else []
    if around:
        flags.append("--overlap")  # else it waits for the end of the step around it, which waits for it
    if around and environ.get(_BIND):
        flags.append("--cpu-bind=none")
    return flags


def narrowed(cpus: int, environ: Mapping[str, str]) -> str:
    """Say which variable leaves this process only `cpus` of its job's CPUs on the node; empty: it has them all."""
    whole = cpus_of_node(environ)
    per_task = environ.get(_CPUS, "")
    if not step_around(environ) or not 0 < cpus < whole:
        return ""
    again = f"srun --cpus-per-task={whole}, or primus slurm srun"
    if per_task.isdecimal() and int(per_task) < whole:
        why = f"{_CPUS}={per_task}, from --cpus-per-task, narrows them"
    elif bound := environ.get(_BIND, ""):
        why, again = f"{_BIND}={bound}, from --cpu-bind, narrows them", "srun --cpu-bind=none, or primus slurm srun"
    elif per_task:
        why, again = "something in the step narrows them, as taskset or numactl", "start Primus without it"
    else:
        why = "srun since 22.05 does not take --cpus-per-task from the job"
    share = f"the ranks of this node share {cpus} of the {whole} CPUs that the job has here"
    return f"{share}: {why}; for all of them: {again}"


def running_instead(steps: str) -> tuple[str, ...]:
    """Return the steps that run, if another one waits for them, from what `scontrol --oneliner show step` says."""
    return tuple(f"step {found[1]} ({found[3]})" for found in _STEP.finditer(steps)) if _WAITING.search(steps) else ()
