"""Runs the parts of a suite on all ranks: each rank starts a process of its own, and they meet in a store of their own.

A rank whose process failed tells the others, which end theirs: these would wait for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from torch import distributed

from primus_bench.benchmarks.suite.parts import Part
from primus_bench.measure.ranks import Ranks

__all__ = ["Ended", "run"]

_LOOK_S = 0.1
_GRACE_S = 10.0
_TIMED_OUT = 124
_OF_RANKS = ("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK")
_OF_SIZES = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE")


class Ended(NamedTuple):
    """How a part ended, on all ranks alike."""

    part: Part
    exit_code: int
    seconds: float
    why: str = ""
    """Of the rank that failed first; empty: it passed."""


def run(part: Part, number: int, ranks: Ranks, environ: Mapping[str, str], timeout_s: float) -> Ended:
    """Run it; all ranks must call this."""
    began = time.monotonic()
    here = ranks.place.rank == 0 or not part.alone
    store = _meeting(part, ranks, environ)
    port = ranks.exchange(store.port if store else 0)[0]
    found = (0, "", 0.0)
    if here:
        found = _process(part, ranks, f"suite/{number}/failed", _environ(part, environ, port), timeout_s)
    ends = ranks.exchange(list(found))
    del store  # nobody needs it any longer
    code, why = _first_failure(ends, ranks)
    return Ended(part, code, time.monotonic() - began, why)


def _meeting(part: Part, ranks: Ranks, environ: Mapping[str, str]) -> Any:
    """A store on rank 0, where the processes of a part meet: in another part's store, they would find its values."""
    if ranks.place.rank or part.alone or "MASTER_ADDR" not in environ:
        return None
    return distributed.TCPStore(environ["MASTER_ADDR"], 0, is_master=True, wait_for_workers=False)


def _environ(part: Part, environ: Mapping[str, str], port: int) -> dict[str, str]:
    if part.alone:
        kept = {name: value for name, value in environ.items() if not name.startswith("TORCHELASTIC_")}
        return {**kept, **dict.fromkeys(_OF_RANKS, "0"), **dict.fromkeys(_OF_SIZES, "1")}
    return {**environ, "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"} if port else dict(environ)


def _process(part: Part, ranks: Ranks, key: str, environ: dict[str, str], timeout_s: float) -> tuple[int, str, float]:
    """This rank's; its exit code, why it failed, and when."""
    with tempfile.TemporaryDirectory(prefix="primus-suite-") as folder:
        reason = os.path.join(folder, "reason")
        argv = [sys.executable, "-m", "primus_bench.benchmarks.suite.part", reason, part.module, *part.args]
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environ) as process:
            try:
                code, why = _wait(process, ranks, key, time.monotonic() + timeout_s)
            finally:  # SIGTERM, too: nothing is left running
                _end(process)
        if code:
            ranks.store.set(key, "")
        with suppress(OSError), open(reason, encoding="utf-8") as file:
            why = why or file.read()
    return code, why or (f"exit code {code}" if code else ""), time.time()


def _wait(process: subprocess.Popen[bytes], ranks: Ranks, key: str, until: float) -> tuple[int, str]:
    while (code := process.poll()) is None:
        if ranks.store.check([key]):
            return 0, ""  # another rank has failed, and has the reason
        if time.monotonic() > until:
            return _TIMED_OUT, "it took too long (--timeout)"
        time.sleep(_LOOK_S)
    return (128 - code, f"ended by signal {-code}") if code < 0 else (code, "")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _first_failure(ends: list[list[Any]], ranks: Ranks) -> tuple[int, str]:
    """Its exit code and reason."""
    failed = sorted((when, rank) for rank, (code, _, when) in enumerate(ends) if code)
    if not failed:
        return 0, ""
    rank = failed[0][1]
    where = f"rank {rank} ({ranks.hosts[rank]})"
    code, why, _ = ends[rank]
    return code, why if where in why or len(ends) == 1 else f"{where}: {why}"
