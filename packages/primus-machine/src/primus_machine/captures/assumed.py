"""Another machine: a captured one, or one of which nothing is known but the model of its GPUs."""

from __future__ import annotations

import os
import re

from primus_machine import facts
from primus_machine.errors import RequestError, suggestion
from primus_machine.gpus.devices import Gpu, memory_of
from primus_machine.host import HostRoot

__all__ = ["GPUS_PER_NODE", "assume_gpus", "assume_host"]

GPUS_PER_NODE = 8
"""So many GPUs an assumed machine has, if nothing says otherwise: those of MI300X, H100 and their successors do."""
_EMPTY = f"{os.devnull}/assumed"
"""The root of a machine of which no file is known."""


def assume_host(given: str, here: HostRoot) -> facts.Facts:
    """Return the facts of the machine `given`: a capture, a folder with `/sys` and `/proc`, or a model of GPUs; of the
    one that is `here` where nothing is given.

    Raises:
        RequestError: it is none of them.
    """
    if not given:
        return facts.read(here)
    if os.path.exists(given) or not re.fullmatch(r"[\w ]+", given):
        from primus_machine.captures import capture  # tarfile, and what it needs

        return facts.read(capture.read(given, here))
    gpus = assume_gpus(given, GPUS_PER_NODE)
    note = f"a machine with {GPUS_PER_NODE} {gpus[0].model} is assumed; its CPUs and its network are not known"
    return facts.read(HostRoot(_EMPTY, here.environ))._replace(gpus=gpus, notes=(note,))


def assume_gpus(name: str, count: int) -> tuple[Gpu, ...]:
    """Return `count` GPUs of the model called `name`.

    Raises:
        RequestError: no model is called so.
    """
    from primus_machine.gpus import models  # 14 ms, which a plan for this machine need not pay

    model = models.by_name(name)
    if not model:
        known = [one.name for one in models.load()]
        near = suggestion(name, known) or "choose one of these, or capture the machine: primus env capture"
        raise RequestError(f"no GPU is called '{name}'", why=f"known: {', '.join(known)}", fix=near)
    one = Gpu(model.vendor, "", model.pci_devices[0], model=model.name, architecture=model.architecture,
              memory_bytes=memory_of(model))  # fmt: skip
    return tuple(one._replace(pci_address=f"0000:{index:02x}:00.0", gpu=index) for index in range(count))
