"""Removes the containers that dead runs of Primus left: those that carry its labels and that nobody stays with.

python -m primus_container.leftovers ENGINE NAME RUN-ID
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from primus_container import apptainer
from primus_container.labels import LABEL, LABEL_DIRECTORY, LABEL_HOST
from primus_machine.errors import MachineError
from primus_machine.files import plain_json
from primus_machine.host import HostRoot

__all__ = ["Container", "clean", "remove"]

_PATIENCE_S = 60
_AGAIN_S = 1


class Container(NamedTuple):
    """A container of ours, running or not."""

    name: str
    run: str
    host: str
    directory: str
    state: str


def clean(engine: str, environ: Mapping[str, str], hostname: str, *, dry_run: bool) -> int:
    """Remove the stale containers of this host, or say which ones would go; the exit code.

    Raises:
        MachineError: the engine is not here, or does not answer.
    """
    if engine in apptainer.ENGINES:
        raise MachineError(
            f"{engine} keeps no containers", fix="nothing to clean; or name another engine: --engine docker"
        )
    stale = [one for one in _ours(engine, environ) if one.host == hostname and not _is_attended(one.name)]
    for one in stale:
        if not dry_run:
            _ask(engine, environ, "rm", "--force", one.name)
            _require_gone(engine, one.name, environ)
        done = "would remove" if dry_run else "removed"
        sys.stdout.write(f"{done} {one.name} ({one.state}), of {one.directory}\n")
    if not stale:
        sys.stdout.write(f"{engine} has no container to remove\n")
    return 0


def _require_gone(engine: str, name: str, environ: Mapping[str, str]) -> None:
    """For podman has been seen to call it a success where it removed nothing."""
    if name in _ask(engine, environ, "ps", "--all", "--format", "{{.Names}}").split():
        raise MachineError(
            f"{engine} still has the container {name} after `rm --force`", fix="try again, or remove it by hand"
        )


def _ours(engine: str, environ: Mapping[str, str]) -> Iterator[Container]:
    form = "{{.Names}}\t{{.State}}"
    for line in _ask(engine, environ, "ps", "--all", "--filter", f"label={LABEL}", "--format", form).splitlines():
        name, _, state = line.partition("\t")
        labels = plain_json.loads(_ask(engine, environ, "inspect", "--format", "{{json .Config.Labels}}", name))
        yield Container(name, labels[LABEL], labels.get(LABEL_HOST, ""), labels.get(LABEL_DIRECTORY, ""), state)


def remove(engine: str, name: str, run: str, environ: Mapping[str, str]) -> None:
    """Remove the container of a run, and none of somebody else's that has its name.

    Raises:
        MachineError: the engine is not here, or does not answer.
    """
    form = "{{.ID}}\t{{.Names}}"
    for line in _ask(engine, environ, "ps", "--all", "--filter", f"label={LABEL}={run}", "--format", form).splitlines():
        number, _, found = line.partition("\t")
        if found == name:
            try:
                _ask(engine, environ, "rm", "--force", number)
            except MachineError:  # podman, of a container that ends just now
                time.sleep(_AGAIN_S)
                _ask(engine, environ, "rm", "--force", number)


def _is_attended(name: str) -> bool:
    """Whether a process here runs it still: a run's Primus, or somebody who pasted a dry run, waits for the engine."""
    return any(f"\0--name\0{name}\0" in words for words in _command_lines())


def _command_lines() -> Iterator[str]:
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            try:
                with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                    yield file.read()
            except OSError:  # it has ended
                continue


def _ask(engine: str, environ: Mapping[str, str], *words: str) -> str:
    try:
        answer = subprocess.run(
            [engine, *words], env=environ, text=True, capture_output=True, check=False, timeout=_PATIENCE_S,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except FileNotFoundError:
        raise MachineError(
            f"command '{engine}' not found", fix="install podman or docker, or name one: --engine docker"
        ) from None
    except subprocess.TimeoutExpired:
        raise MachineError(f"{engine} {words[0]} does not answer within {_PATIENCE_S} s") from None
    if answer.returncode:
        raise MachineError(f"{engine} {words[0]} failed (exit code {answer.returncode})", why=answer.stderr.strip())
    return answer.stdout


def _main(words: Sequence[str]) -> int:
    try:
        remove(words[0], words[1], words[2], HostRoot().environ)
    except MachineError:  # nobody hears it: it went with the engine
        return 3
    return 0


if __name__ == "__main__":
    raise SystemExit(_main(sys.argv[1:]))
