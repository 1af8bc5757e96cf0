"""Runs programs as forks of a process that has imported what takes long: torch and a framework, once per pytest worker.

A test that trains pays for the imports of each rank, about six CPU seconds. With a fork server it pays for them once:

    with ForkServer(("torch", "datasets"), {"OMP_NUM_THREADS": "1"}) as forks:
        ranks = forks.run("primus_torchtitan.worker", torchrun(2, environ), cwd=folder)
        assert [rank.code for rank in ranks] == [0, 0], ranks

A fork is like the process that `python -m MODULE` starts: it has its own environment, folder and output, default
signals, and ends as Python ends. It differs in this: a module that the server imported is not imported again, and
`sys.path` begins with its folder and its PYTHONPATH, without `sitecustomize`; all ranks hash with one seed. Variables that count when Python starts
or when such a module is imported (`fixed`) are the server's: a program that asks for another value is refused.
No process outlives its request, and the server ends with its client, even if that is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

LEFT_S = 15
"""For what a program left running: it may end by itself, as Python's resource tracker does. Then it is killed."""
TIMEOUT_S = 300
GONE = "has no client any more"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>


@dataclass(frozen=True)
class Ended:
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
        "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_RUN_ID": "forks",
        "TORCHELASTIC_USE_AGENT_STORE": "False",  # there is no agent: rank 0 serves the store
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }  # fmt: skip
    return [{**environ, **shared, **dict.fromkeys(("RANK", "LOCAL_RANK", "ROLE_RANK"), str(r))} for r in range(ranks)]


def _counts_at_start(name: str) -> bool:
    """Whether Python reads this variable when it starts."""
    return name in ("LANG", "TZ") or (name.startswith(("LC_", "PYTHON")) and name != "PYTHONPATH")


def _port() -> int:
    """A free port below those that the kernel gives away: rank 0 takes it later, and the kernel gives it to no other program until then."""
    while True:
        port = random.randrange(15_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class ForkServer:
    """Starts the server at the first request. `fixed` are the variables that `modules` read when they are imported."""

    def __init__(self, modules: Sequence[str], fixed: Mapping[str, str]) -> None:
        from tests.conftest import plain_environ  # not at the top: the server does not find `tests`

        self.modules, self.fixed = list(modules), dict(fixed)
        self._environ = {**plain_environ(), **fixed}
        self._server: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server, and with it whatever it runs."""
        server, self._server = self._server, None
        if not server:
            return
        try:
            server.communicate(timeout=LEFT_S)  # closes its input, at which it ends, unless an import hangs
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.communicate()

    def run(
        self,
        program: str | Path,
        environs: Sequence[Mapping[str, str]],
        *,
        cwd: Path,
        argv: Sequence[str] = (),
        timeout: float = TIMEOUT_S,
    ) -> list[Ended]:
        """Run a module (`str`) or a file (`Path`) once for each of `environs`, all at the same time, until all ended."""
        for environ in environs:
            assert not (reason := self.refuses(environ)), reason
        with tempfile.TemporaryDirectory(prefix="forks-") as folder:
            files = [(f"{folder}/{number}.out", f"{folder}/{number}.err") for number in range(len(environs))]
            ranks = [[{**e, **self.fixed}, *names] for e, names in zip(environs, files, strict=True)]
            request = {"program": str(program), "file": isinstance(program, Path), "argv": list(argv),
                       "cwd": str(cwd), "ranks": ranks, "timeout": timeout}  # fmt: skip
            answer = self._ask(json.dumps(request))
            texts = [tuple(Path(name).read_text(errors="replace") for name in names) for names in files]
            ended = [Ended(code, *text) for code, text in zip(answer["codes"], texts, strict=True)]
        if answer["problem"]:
            shown = "".join(
                f"\n--- {n}, exit code {e.code}\n{e.out[-1500:]}{e.err[-1500:]}" for n, e in enumerate(ended)
            )
            raise AssertionError(f"{program} {answer['problem']}{shown}")
        return ended

    def refuses(self, environ: Mapping[str, str]) -> str:
        """Why a program with these variables needs a Python of its own; empty: it does not."""
        for name in (n for n in {*environ, *self._environ} if n in self.fixed or _counts_at_start(n)):
            value, there = environ.get(name, self.fixed.get(name)), self._environ.get(name)
            if value != there:
                return f"{name}={value}: the fork server was started with {name}={there}"
        return ""

    def _ask(self, request: str) -> Any:
        try:
            server = self._server or self._start()
            assert server.stdin
            server.stdin.write(request + "\n")
            server.stdin.flush()
            return self._answer(server)
        except BaseException:  # a test that timed out, too: the next must not get this one's answer
            self.close()
            raise

    def _start(self) -> subprocess.Popen[str]:
        words = [sys.executable, "-P", __file__, *self.modules]  # -P: tests/megatron must not hide megatron
        self._server = server = subprocess.Popen(words, env=self._environ, text=True, stdin=subprocess.PIPE,
                                                 stdout=subprocess.PIPE, start_new_session=True)  # fmt: skip
        assert self._answer(server) == "ready"
        return server

    def _answer(self, server: subprocess.Popen[str]) -> Any:
        assert server.stdout
        line = server.stdout.readline()
        assert line, f"the fork server ended with exit code {server.wait()}; its reason is on stderr"
        return json.loads(line)


def _prctl(option: int, value: int) -> None:
    assert ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0


def _redirect(descriptor: int, path: str) -> None:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, descriptor)
    os.close(file)


def _children() -> list[int]:
    """What runs below this process: its forks, and whatever lost its parent below them."""
    return [int(pid) for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()]


def _become(request: Mapping[str, Any], environ: Mapping[str, str], out: str, err: str) -> Callable[[], object]:
    """In the fork: be as if Python had just been started with the request; what is left to do is returned."""
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    _redirect(1, out)
    _redirect(2, err)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(request["cwd"])
    program = request["program"]
    first = str(Path(program).parent) if request["file"] else request["cwd"]
    sys.path[:0] = [first, *filter(None, environ.get("PYTHONPATH", "").split(":"))]
    sys.argv[:] = [program, *request["argv"]]
    sys.orig_argv[:] = [sys.executable, *(() if request["file"] else ("-m",)), *sys.argv]
    importlib.invalidate_caches()
    if request["file"]:
        run = partial(runpy.run_path, program, run_name="__main__")
    else:
        run = partial(runpy.run_module, program, run_name="__main__", alter_sys=True)
    return run


def _wait(codes: dict[int, int | None], requests: int, timeout: float) -> str:
    """Until nothing runs any more; fills in the exit codes, and returns what went wrong. Ends with the client."""
    deadline, problem = time.monotonic() + timeout, ""
    with contextlib.suppress(ChildProcessError):  # there are no more
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid in codes:
                codes[pid] = os.waitstatus_to_exitcode(status)
                if codes[pid] or None not in codes.values():  # who waits for one that failed has no more to say
                    deadline = min(deadline, time.monotonic() + LEFT_S)
            if not problem and time.monotonic() > deadline:
                running = [n for n, code in enumerate(codes.values()) if code is None]
                failed = [n for n, code in enumerate(codes.values()) if code]
                late = f"did not end {LEFT_S} s after {failed} failed" if failed else f"did not end in {timeout} s"
                problem = f"{late}: {running}" if running else "left processes behind"
            if not pid and select.select([requests], [], [], 0.01)[0]:
                problem = GONE
            for child in _children() if problem else ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
    if problem == GONE:
        os._exit(1)
    return problem


def _serve(modules: Sequence[str]) -> Callable[[], object] | None:
    """Answer requests until there are no more. In a fork: return what it runs."""
    requests, replies = os.fdopen(os.dup(0)), os.dup(1)  # for what is imported, and for forks, there is no 0 and 1
    _redirect(0, os.devnull)
    os.dup2(2, 1)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    for module in modules:
        importlib.import_module(module)
    gc.freeze()  # or each fork copies the pages of all these modules when it ends and collects them
    os.write(replies, b'"ready"\n')
    server = os.getpid()
    for line in requests:
        request, codes = json.loads(line), dict[int, int | None]()
        for rank in request["ranks"]:
            if not (pid := os.fork()):
                _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != server:
                    os._exit(1)
                requests.close()
                os.close(replies)
                return _become(request, *rank)
            codes[pid] = None
        problem = _wait(codes, requests.fileno(), request["timeout"])
        os.write(replies, json.dumps({"codes": list(codes.values()), "problem": problem}).encode() + b"\n")
    return None


if __name__ == "__main__":
    run = _serve(sys.argv[1:])
    if not run:
        os._exit(0)  # the server has nothing to tidy up, and taking torch apart takes a second
    run()
