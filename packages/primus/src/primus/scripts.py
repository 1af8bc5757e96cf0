"""What the scripts of AMD's Primus did, as a command of Primus: printed, then run.

EXP=examples/quickstart.yaml python -m primus.scripts run_pretrain.sh training.steps=5
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, NoReturn

from primus_core.errors import PrimusError, RequestError, suggestion
from primus_machine.errors import as_line
from primus_machine.host import HostRoot
from primus_machine.secrets.redaction import redact_words

__all__ = ["RUNTIMES", "Forwarded", "forwarded", "main"]

RUNTIMES = {
    f"run_{name}pretrain{cli}.sh": runtime
    for name, runtime in (("", "direct"), ("local_", "container"), ("slurm_", "slurm"))
    for cli in ("", "_cli")
}
"""The scripts in `examples/` of AMD's Primus, and where they ran."""

_SLURM = {
    "SLURM_TIME": "--time",
    "SLURM_PARTITION": "--partition",
    "SLURM_NODELIST": "--nodelist",
    "NODES_LIST": "--nodelist",
    "RESERVATION": "--reservation",
    "CPUS_PER_TASK": "--cpus-per-task",
}
_INSIDE = ("UCCL_", "DATABRICKS_", "DUMP_HLO")
"""Beginnings of variables that the scripts passed into the container and that Primus does not by itself."""
_OF_NODES = ("NNODES", "NODE_RANK", "MASTER_ADDR")
"""What Slurm says better on each node."""
_HOOK = "a hook script does that: docs/hooks.md"
_UNREAD = {
    "BACKEND": "set the backend with `framework:` in the experiment",
    **dict.fromkeys(("TORCHTITAN_PATH", "MAXTEXT_PATH"), "the backend is the installed package"),
    "MEGATRON_PATH": "BACKEND_PATH names a checkout of Megatron: docs/megatron.md",
    "DATA_PATH": "name the data in the experiment; HF_HOME is below it, as ever",
    "CLEAN_DOCKER_CONTAINER": "`primus container --clean` removes what dead runs of yours left, and no others",
    "LOG_DIR": "the run directory has the logs",
    **dict.fromkeys(("REBUILD_PRIMUS_TURBO", "REBUILD_BNXT", "REBUILD_UEP", "PATCH_TE_FLASH_ATTN"), _HOOK),
    **dict.fromkeys(("USING_AINIC", "USING_UEP"), _HOOK),
}


class Forwarded(NamedTuple):
    """The command that does what a script did."""

    words: tuple[str, ...]
    notes: tuple[str, ...]
    """Variables that the script read and Primus does not, each with what does it here."""
    without: tuple[str, ...] = ()
    """Variables that the command must not see."""

    def __str__(self) -> str:
        hidden = [word for name in self.without for word in ("-u", name)]
        return shlex.join([*(["env", *hidden] if hidden else []), *redact_words(self.words)])


def forwarded(script: str, words: Sequence[str], environ: Mapping[str, str]) -> Forwarded:
    """The command for a script with these words and variables.

    Raises:
        RequestError: Primus has nothing that does what the script did, or EXP is not set.
    """
    if script not in RUNTIMES:
        raise _unknown(script)
    runtime = RUNTIMES[script]
    if not environ.get("EXP"):
        example = "primus {} -- train pretrain --config FILE".format(
            {"slurm": "slurm srun -N 1 -- container"}.get(runtime, runtime)
        )
        raise RequestError(f"{script}: EXP is not set", why="it names the experiment", fix=f"EXP=FILE, or: {example}")
    segments = [list(_direct(environ))]
    if runtime != "direct":
        segments.insert(0, list(_container(environ)))
    if runtime == "slurm":
        segments.insert(0, list(_slurm(environ)))
    if len(segments) > 1 and segments[-1] == ["direct"]:
        segments.pop()  # it is what runs inside
    layers = [word for segment in segments for word in (*segment, "--")]
    notes = [f"{name} is not read: {why}" for name, why in _UNREAD.items() if environ.get(name, "0") not in ("", "0")]
    hidden = tuple(name for name in _OF_NODES if runtime == "slurm" and environ.get(name))
    task = ("train", "pretrain", "--config", environ["EXP"], *words)
    return Forwarded(("primus", *layers, *task), tuple(notes), hidden)


def _unknown(script: str) -> RequestError:
    if script == "run_k8s_pretrain.sh":
        return RequestError(
            "Primus submits nothing to Kubernetes",
            fix="in each pod, with NNODES, NODE_RANK and MASTER_ADDR: primus direct -- train pretrain --config FILE",
        )
    return RequestError(f"no script is called '{script}'", fix=suggestion(script, RUNTIMES) or ", ".join(RUNTIMES))


def _direct(environ: Mapping[str, str]) -> Iterator[str]:
    yield "direct"
    if environ.get("ENABLE_NUMA_BINDING") == "1":
        yield "--numa"
    if log := environ.get("TRAIN_LOG"):
        yield from ("--log-file", log)
    if (data := environ.get("DATA_PATH")) and not environ.get("HF_HOME"):
        yield from ("--env", f"HF_HOME={data}/huggingface")


def _container(environ: Mapping[str, str]) -> Iterator[str]:
    yield "container"
    if image := environ.get("DOCKER_IMAGE"):
        yield from ("--image", image)
    if name := environ.get("CONTAINER_NAME"):
        yield from ("--name", name)
    if data := environ.get("DATA_PATH"):
        yield from ("--mount", data)
    for name in sorted(environ):
        if name.startswith(_INSIDE):
            yield from ("--env", name)


def _slurm(environ: Mapping[str, str]) -> Iterator[str]:
    yield from ("slurm", "srun", "-N", environ.get("NNODES") or "1", "--exclusive")
    for name, flag in _SLURM.items():
        if value := environ.get(name):
            yield f"{flag}={value}"


def main(words: Sequence[str]) -> int:
    """Print the command for a script, and become it."""
    environ = dict(HostRoot().environ)
    try:
        found = forwarded(words[0] if words else "", words[1:], environ)
    except PrimusError as error:
        sys.stderr.write(as_line(error))
        return error.exit_code
    sys.stderr.write(f"primus: {words[0]} is: {found}\n")
    sys.stderr.writelines(f"primus: note: {note}\n" for note in found.notes)
    if environ.get("SKIP_TRAIN") == "1":
        sys.stderr.write("primus: SKIP_TRAIN=1: nothing is started\n")
        return 0
    sys.stderr.flush()
    return _become(found, environ)


def _become(found: Forwarded, environ: Mapping[str, str]) -> NoReturn:
    kept = {name: value for name, value in environ.items() if name not in found.without}
    command = (sys.executable, "-m", "primus_core", *found.words[1:])
    os.execve(sys.executable, command, kept)  # noqa: S606  # this process has nothing more to do


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
