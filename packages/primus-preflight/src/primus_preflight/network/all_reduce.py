"""One rank of an all-reduce, which says how fast it was. A program of its own, since a collective may hang.

python -m primus_preflight.network.all_reduce --device cpu --rank 0 --world 2 --meet meet.json
{"stage": "loaded", "torch": "2.13.0"}
{"value": 1.9, "seconds": 0.0087, "count": 20}     GB/s busbw
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from primus_machine.files import plain_json
from primus_machine.files.atomic import regular, write_atomically
from primus_preflight.checks import program

__all__ = ["main"]

_MEASURED_S, _MOST = 2.0, 20
_WARM_UP = 2


def main(words: Sequence[str]) -> int:
    """Measure what the words say."""
    return program.run(_arguments(), words, _measure)


def _measure(args: argparse.Namespace, device: Any) -> None:
    import torch
    from torch import distributed

    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=_store(args),
        rank=args.rank,
        world_size=args.world,
        timeout=timedelta(seconds=args.patience),
    )
    try:
        program.say(**_measured(device, args.bytes, args.world))
    finally:
        distributed.destroy_process_group()


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m primus_preflight.network.all_reduce", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True, help="how many ranks there are")
    parser.add_argument("--meet", required=True, metavar="FILE", help="where rank 0 says at which port it listens")
    parser.add_argument("--address", default="127.0.0.1", help="rank 0's, by which the others reach it")
    parser.add_argument("--bytes", type=int, default=1 << 22, help="what each rank has to sum up")
    parser.add_argument("--patience", type=float, default=120.0, metavar="SECONDS")
    return parser


def _store(args: argparse.Namespace) -> Any:
    """Where the ranks exchange their addresses: rank 0 has it, on a port that was free."""
    from torch import distributed

    patience = timedelta(seconds=args.patience)
    if args.rank == 0:
        store = distributed.TCPStore(args.address, 0, None, True, patience, wait_for_workers=False)
        write_atomically(args.meet, json.dumps({"port": store.port}), durable=False)
        return store
    return distributed.TCPStore(args.address, _port(args.meet, args.patience), None, False, patience)


def _port(path: str, patience_s: float) -> int:
    deadline = time.monotonic() + patience_s
    while os.path.basename(path) not in os.listdir(os.path.dirname(path) or "."):  # listed, so that NFS looks again
        if time.monotonic() > deadline:
            raise SystemExit("rank 0 did not publish its port")
        time.sleep(0.1)
    with open(path, encoding="utf-8", opener=regular) as file:
        return int(plain_json.loads(file.read())["port"])


def _measured(device: Any, size: int, world: int) -> dict[str, object]:
    """Bus bandwidth, GB/s: bytes/s · 2(n-1)/n, what each link carries in a ring (NCCL tests, doc/PERFORMANCE.md).

    A wrong sum is told as such. The median of calls that began together.
    """
    import torch
    from torch import distributed

    data = torch.ones(size // 4, dtype=torch.float32, device=device)  # it counts to 2^24 ranks; bf16 to 256
    distributed.all_reduce(data)
    if not bool((data == world).all()):
        return {"wrong": f"the sum of {world} ones is not {world} everywhere"}
    taken = [_timed(data) for _ in range(_WARM_UP)]
    # All ranks have to make as many calls: as many as the slowest has time for.
    slowest = torch.tensor([taken[-1]], device=device)
    distributed.all_reduce(slowest, op=distributed.ReduceOp.MAX)
    count = min(max(int(_MEASURED_S / float(slowest)), 1), _MOST)
    seconds = statistics.median(_timed(data) for _ in range(count))
    return {"value": size / seconds * 2 * (world - 1) / world / 1e9, "seconds": seconds, "count": count}


def _timed(data: Any) -> float:
    """Seconds of one all-reduce, from when all ranks are ready."""
    import torch
    from torch import distributed

    data.fill_(1)
    distributed.barrier()
    if data.is_cuda:
        torch.cuda.synchronize()
    began = time.perf_counter()
    distributed.all_reduce(data)
    if data.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
