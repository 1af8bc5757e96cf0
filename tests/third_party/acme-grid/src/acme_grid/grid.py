"""Acme Grid, a batch system that knows nothing of Primus. Its nodes are the addresses of this machine's loopback.

A job is a folder `$ACME_GRID/jobs/g<number>`. The node that runs a job's script, and each process that `acme-run` starts
on a node, finds the job in `ACME_*`. Jobs wait while there is a file `$ACME_GRID/hold`.

acme-serve                                        start what is queued, until SIGTERM
acme-submit --nodes 2 --log FILE SCRIPT           queue a script; `%j` in FILE is the job's number
acme-run step --nodes 2 [--exclude NODE,...] -- WORDS  run a command on each node, and wait
acme-jobs | acme-cancel JOB | acme-requeue JOB
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

POOL = [f"127.0.0.{number}" for number in range(1, 9)]
OVER = ("DONE", "FAILED", "CANCELLED")


def folder() -> Path:
    return Path(os.environ["ACME_GRID"])


def read(place: Path, number: str) -> dict[str, Any] | None:
    """What is known of a job; None: there is none."""
    try:
        job: dict[str, Any] = json.loads((place / "jobs" / number / "job.json").read_text(encoding="utf-8"))
    except OSError:
        return None
    return job


def update(number: str, /, **known: Any) -> dict[str, Any]:
    path = folder() / "jobs" / number / "job.json"
    job = {**(read(folder(), number) or {}), **known}
    path.with_suffix(".new").write_text(json.dumps(job), encoding="utf-8")
    path.with_suffix(".new").replace(path)
    return job


def create(**known: Any) -> str:
    """A new job; its number."""
    for number in range(1, 10**6):
        try:
            (folder() / "jobs" / f"g{number}").mkdir(parents=True)
        except FileExistsError:
            continue
        update(f"g{number}", number=f"g{number}", created=time.time(), restarts=0, **known)
        return f"g{number}"
    raise SystemExit("acme: no number is left")


def end(place: Path, number: str) -> None:
    """Ask for the end of a job; one that has not begun never will."""
    (place / "jobs" / number / "cancel").touch()


def down(place: Path) -> set[str]:
    """The nodes that were lost."""
    return {path.name for path in place.glob("down/*")}


def submit() -> int:
    parser = argparse.ArgumentParser("acme-submit")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--log", default=os.devnull)
    parser.add_argument("script")
    args = parser.parse_args()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ACME_") or name == "ACME_GRID"}
    number = create(
        state="QUEUED", nodes=args.nodes, log=args.log, script=args.script, environ=environ, cwd=os.getcwd()
    )
    print(f"acme: job {number} is queued")
    return 0


def show() -> int:
    for path in sorted(folder().glob("jobs/g*")):
        print(path.name, (read(folder(), path.name) or {}).get("state"))
    return 0


def cancel() -> int:
    end(folder(), sys.argv[1])
    return 0


def requeue() -> int:
    (folder() / "jobs" / sys.argv[1] / "requeue").touch()
    return 0


def serve() -> int:
    running: dict[str, subprocess.Popen[bytes]] = {}
    over: list[int] = []
    told: set[str] = set()
    signal.signal(signal.SIGTERM, lambda number, _: over.append(number))
    while not over:
        for path in sorted(folder().glob("jobs/g*")):
            job = read(folder(), path.name)
            if not job or job["state"] in OVER:
                continue
            if (path / "cancel").exists() and path.name not in told:
                told.add(path.name)
                _cancelled(job)
            elif job["state"] == "QUEUED" and not (folder() / "hold").exists():
                running[path.name] = _start(job)
        for number in [number for number, script in running.items() if script.poll() is not None]:
            _ended(folder() / "jobs" / number, running.pop(number).returncode)
        time.sleep(0.05)
    return 0


def _cancelled(job: dict[str, Any]) -> None:
    if job["state"] == "QUEUED":
        update(job["number"], state="CANCELLED")
    else:
        os.kill(job["pid"], signal.SIGTERM)


def _start(job: dict[str, Any]) -> subprocess.Popen[bytes]:
    hosts = [host for host in POOL if host not in down(folder())][: job["nodes"]]
    environ = {**job["environ"], **_of_job(job["number"], hosts), "ACME_RESTARTS": str(job["restarts"])}
    with open(job["log"].replace("%j", job["number"]), "ab") as log:
        script = subprocess.Popen([job["script"]], env=environ, cwd=job["cwd"], stdout=log, stderr=log,
                                  stdin=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
    update(job["number"], state="ACTIVE", pid=script.pid)
    return script


def _ended(path: Path, code: int) -> None:
    again = path / "requeue"
    if again.exists():
        again.unlink()
        update(path.name, state="QUEUED", restarts=(read(folder(), path.name) or {})["restarts"] + 1)
        return
    state = "CANCELLED" if (path / "cancel").exists() else "FAILED" if code else "DONE"
    update(path.name, state=state, exit_code=128 - code if code < 0 else code)


def _of_job(number: str, hosts: list[str]) -> dict[str, str]:
    return {"ACME_JOB": number, "ACME_HOSTS": ",".join(hosts)}


def run() -> int:
    if sys.argv[1:2] != ["step"]:
        raise SystemExit("acme-run: error: `step` comes first")
    parser = argparse.ArgumentParser("acme-run step")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--slots", type=int, default=1, help="processes on each node")
    parser.add_argument("--exclude", default="", help="nodes to leave out")
    parser.add_argument("--account", help="who pays for it")
    parser.add_argument("words", nargs="+")
    args = parser.parse_args(sys.argv[2:])
    given = os.environ["ACME_HOSTS"].split(",") if "ACME_JOB" in os.environ else POOL
    hosts = [host for host in given if host not in {*args.exclude.split(","), *down(folder())}][: args.nodes]
    if len(hosts) < args.nodes:
        print(f"acme-run: error: {args.nodes} nodes are wanted, and {len(hosts)} are there", file=sys.stderr)
        return 255
    inside = os.environ.get("ACME_JOB", "")
    number = inside or create(state="ACTIVE", script=args.words[0], pid=os.getpid())
    code = _Nodes(number, hosts, args.slots, args.words).wait()
    if not inside:
        _ended(folder() / "jobs" / number, code)
    return code


class _Nodes:
    def __init__(self, number: str, hosts: list[str], slots: int, words: list[str]) -> None:
        signal.signal(signal.SIGTERM, self._end)
        shape = {"ACME_NODES": str(len(hosts)), "ACME_SLOTS": str(slots), **_of_job(number, hosts)}
        self.going: dict[int, str] = {}
        for node, host in enumerate(hosts):
            environ = {"ACME_RESTARTS": "0", **os.environ, **shape, "ACME_NODE": str(node)}
            pid = subprocess.Popen(words, env=environ, start_new_session=True).pid
            self.going[pid] = host
            (folder() / "jobs" / number / host).write_text(str(pid))

    def wait(self) -> int:
        """Where one fails, the others end."""
        result = 0
        while self.going:
            pid, status = os.wait()
            code, host = os.waitstatus_to_exitcode(status), self.going.pop(pid)
            if code == -signal.SIGKILL:
                print(f"acme-run: error: node {host} is lost", file=sys.stderr, flush=True)
                (folder() / "down").mkdir(exist_ok=True)
                (folder() / "down" / host).touch()
            elif code and not result:
                print(f"acme-run: error: {host} ended with {code}", file=sys.stderr, flush=True)
            if code and not result:
                result = 1 if code < 0 else code
                self._end(signal.SIGTERM, None)
        return result

    def _end(self, number: int, frame: FrameType | None) -> None:
        for pid in self.going:
            os.kill(pid, number)


if __name__ == "__main__":
    raise SystemExit(serve())
