"""Tasks that fail as trainings do; a test drops this file into a project."""

import importlib
import os
import pathlib
import socket
import time
from typing import Any

from primus_core import register_task
from primus_core.errors import MachineError

FOLDER = pathlib.Path(__file__).parent


def steps() -> None:
    for number in range(3):
        print(f"step: {number}  loss: {7 - number}.0", flush=True)


@register_task("fail exception", scope="rank")
def exception(call: Any) -> None:
    steps()
    if call.rank == 1:
        missing: dict[str, str] = {}
        missing["text"]
    time.sleep(60)


@register_task("fail module", scope="rank")
def module(call: Any) -> None:
    importlib.import_module("no_such_turbo")


@register_task("fail file", scope="rank")
def file(call: Any) -> None:
    (FOLDER / "dat/tokens.idx").open()


@register_task("fail killed", scope="rank")
def killed(call: Any) -> None:
    steps()
    if call.rank == 1:
        os.kill(os.getpid(), 9)
    time.sleep(60)


@register_task("fail disk", scope="rank")
def disk(call: Any) -> None:
    (pathlib.Path(os.environ["SMALL"]) / "checkpoint").write_bytes(b"x" * (4 << 20))


@register_task("fail memory", scope="rank")
def memory(call: Any) -> None:
    steps()
    if call.rank == 1:
        held = bytearray(700 << 20)
        held[::4096] = b"x" * len(held[::4096])
    time.sleep(60)


@register_task("fail port", scope="rank")
def port(call: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as first, socket.socket() as second:
        second.bind(first.getsockname())


@register_task("fail stuck", scope="rank")
def stuck(call: Any) -> None:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    steps()
    if call.rank == 1:
        time.sleep(600)
    dist.all_reduce(torch.ones(4))


@register_task("fail collective", scope="rank")
def collective(call: Any) -> None:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    steps()
    if call.rank == 1:
        raise ValueError("bad sample 17")
    dist.all_reduce(torch.ones(4))


@register_task("fail checkpoint", scope="rank")
def checkpoint(call: Any) -> None:
    import torch

    path = FOLDER / f"model_{call.rank}.pt"
    torch.save({"weight": torch.zeros(1000)}, path)
    os.truncate(path, 500)
    torch.load(path)


@register_task("fail vocabulary", scope="rank")
def vocabulary(call: Any) -> None:
    import torch

    torch.nn.Embedding(256, 8)(torch.tensor([3, 300]))


@register_task("fail check", scope="rank")
def check(call: Any) -> None:
    raise MachineError("this node is unfit", fix="repair it")
