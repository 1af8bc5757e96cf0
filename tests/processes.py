"""Runs a program once for each rank, and waits until all have ended: what a launcher does, without its minutes."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

__all__ = ["Ended", "run_ranks", "torchrun"]

LEFT_S = 15
"""So long the others may go on once one has failed: who waits for it has no more to say."""


class Ended(NamedTuple):
    """How a program ended: its exit code (-N: killed by signal N), and what it wrote."""

    code: int
    out: str
    err: str


def torchrun(ranks: int, environ: Mapping[str, str]) -> list[dict[str, str]]:
    """`environ` for each of so many ranks on one node, with the variables that torchrun sets."""
    size = str(ranks)
    shared = {
        "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_port()), "ROLE_NAME": "default",
        "LOCAL_WORLD_SIZE": size, "WORLD_SIZE": size, "ROLE_WORLD_SIZE": size, "GROUP_WORLD_SIZE": "1", "GROUP_RANK": "0",
        "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_RUN_ID": "processes",
        "TORCHELASTIC_USE_AGENT_STORE": "False",  # there is no agent: rank 0 serves the store
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }  # fmt: skip
    return [{**environ, **shared, **dict.fromkeys(("RANK", "LOCAL_RANK", "ROLE_RANK"), str(r))} for r in range(ranks)]


def _port() -> int:
    """A free port below those that the kernel gives away: no other program gets it before rank 0 takes it."""
    while True:
        port = random.randrange(15_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def run_ranks(
    program: str | Path,
    environs: Sequence[Mapping[str, str]],
    *,
    cwd: Path,
    argv: Sequence[str] = (),
    timeout: float = 300,
) -> list[Ended]:
    """Run a module (`str`) or a file (`Path`) once for each of `environs`, all at the same time."""
    words = [sys.executable, *((program,) if isinstance(program, Path) else ("-m", program)), *argv]
    deadline, killed = time.monotonic() + timeout, False
    with TemporaryDirectory(prefix="ranks-") as folder, contextlib.ExitStack() as stack:
        files = [tuple(Path(folder, f"{rank}.{name}") for name in ("out", "err")) for rank in range(len(environs))]
        ranks = []
        for environ, (out, err) in zip(environs, files, strict=True):
            with out.open("wb") as stdout, err.open("wb") as stderr:
                rank = subprocess.Popen(words, env=environ, cwd=cwd, stdin=subprocess.DEVNULL, stdout=stdout,
                                        stderr=stderr, start_new_session=True)  # fmt: skip
            stack.callback(_end, rank)
            ranks.append(rank)
        while None in (codes := [rank.poll() for rank in ranks]) and not killed:
            if any(codes):
                deadline = min(deadline, time.monotonic() + LEFT_S)
            killed = time.monotonic() > deadline
            time.sleep(0.02)
        stack.close()
        texts = [[path.read_text(errors="replace") for path in both] for both in files]
    ended = [Ended(rank.returncode, *both) for rank, both in zip(ranks, texts, strict=True)]
    shown = "".join(
        f"\n--- {n}, exit code {one.code}\n{one.out[-1500:]}{one.err[-1500:]}" for n, one in enumerate(ended)
    )
    assert not killed, f"{program} did not end{shown}"
    return ended


def _end(rank: subprocess.Popen[bytes]) -> None:
    """Kill what is left of it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(rank.pid, signal.SIGKILL)
    rank.wait()
