"""Fork the ranks of a node, wait for them, and end all where one fails.

python -m acme_grid.fork RANKS FIRST WORLD -m MODULE ARGS
"""

from __future__ import annotations

import os
import runpy
import signal
import sys


def start(local: int, ranks: int, first: int, world: int, words: list[str]) -> int:
    """The process of one rank."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        shape = {"RANK": first + local, "LOCAL_RANK": local, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": ranks}
        os.environ.update({name: str(value) for name, value in shape.items()})
        os.environ["ACME_FORK_PARENT"] = str(os.getppid())
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main(shape: list[str], words: list[str]) -> int:
    ranks, first, world = map(int, shape)
    going = {start(local, ranks, first, world, words): first + local for local in range(ranks)}

    def end(number: int, _: object = None) -> None:
        for pid in going:
            os.kill(pid, number)

    signal.signal(signal.SIGTERM, end)
    result = 0
    while going:
        pid, status = os.wait()
        rank, code = going.pop(pid), os.waitstatus_to_exitcode(status)
        if code < 0:
            print(f"acme-fork: rank {rank}: signal {-code} on {os.uname().nodename}", flush=True)
        if code and not result:
            result = code if code > 0 else 128 - code
            end(signal.SIGTERM)
    return result


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:4], sys.argv[4:]))
