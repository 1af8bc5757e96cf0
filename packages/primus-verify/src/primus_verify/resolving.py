"""Plans trainings without starting them: the experiment itself, and small ones in each layout."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from primus_core.errors import PrimusError
from primus_core.plan.plan import Distributed, RunPlace
from primus_core.plugins.catalogue import Catalogue
from primus_core.plugins.contracts import TaskCall
from primus_machine import facts as machine
from primus_machine.gpus.visible import VISIBLE, hides_gpus, visible
from primus_machine.host import HostRoot

__all__ = ["arguments", "for_its_machine", "refusal"]

_ASSUMED_GPU, _ASSUMED_GPUS = "MI300X", 8


def arguments(config: str, overrides: Sequence[str]) -> argparse.Namespace:
    """Return what `train pretrain --new --config CONFIG` has parsed."""
    return argparse.Namespace(stage="pretrain", config=config, overrides=list(overrides), replay=None, profile=None,
                              anew=True, always=False)  # fmt: skip


def for_its_machine(call: TaskCall) -> TaskCall:
    """Return the call as on the machine that an experiment is for: it may have GPUs and more ranks than this one."""
    from primus_train.commands.resolved import assume_gpus

    facts = call.facts
    if not facts.gpus:
        environ = {name: value for name, value in facts.environ.items() if name not in VISIBLE}
        facts = facts._replace(gpus=assume_gpus(_ASSUMED_GPU, _ASSUMED_GPUS), environ=environ)
    return call._replace(facts=facts, distributed=call.distributed._replace(tentative=True))


def refusal(experiment: str, settings: Mapping[str, Any], ranks: int) -> str:
    """Return why a trial with these settings cannot be planned on this machine; empty: it can."""
    from primus_train import task as train

    host = HostRoot()
    facts = machine.read(host)
    gpus = 0 if hides_gpus(facts.gpus, facts.environ) else len(visible(facts.gpus, facts.environ))
    if 0 < gpus < ranks:
        return f"it needs {ranks} GPUs, and {gpus} can be used here"
    args = arguments(experiment, [f"{name}={value}" for name, value in settings.items()])
    call = TaskCall((), args, facts, Distributed(gpus_per_node=ranks), _nowhere, Catalogue.here(host, ""))
    try:
        train.resolve(call)
    except PrimusError as error:
        what = error.what.removeprefix(f"{getattr(error, 'where', '')}: ")  # a line of our own small experiment
        return f"{what}{f' ({error.why})' if error.why else ''}"
    return ""


def _nowhere(_: str, name: str) -> RunPlace:
    return RunPlace(name, f"/nowhere/{name}", "")
