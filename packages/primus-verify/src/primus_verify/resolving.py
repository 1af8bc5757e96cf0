"""Plans trainings without starting them: the experiment itself, and small ones in each layout."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from primus_core.errors import MachineError, PrimusError, RequestError, suggestion
from primus_core.installed import joined
from primus_core.plan.plan import Distributed, RunPlace
from primus_core.plugins.catalogue import Catalogue
from primus_core.plugins.contracts import TaskCall
from primus_machine import facts as machine
from primus_machine.captures.assumed import assume_gpus
from primus_machine.facts import Facts
from primus_machine.gpus.visible import VISIBLE, hides_gpus, visible
from primus_machine.host import HostRoot
from primus_verify.contract import GROUP, Verifier

__all__ = ["arguments", "as_experiment", "as_reason", "find_verifier", "for_its_machine", "refusal"]

_ASSUMED_GPU, _ASSUMED_GPUS = "MI300X", 8


def arguments(config: str, overrides: Sequence[str]) -> argparse.Namespace:
    """Return what `train pretrain --new --config CONFIG` has parsed."""
    return argparse.Namespace(stage="pretrain", config=config, overrides=list(overrides), replay=None, profile=None,
                              anew=True, always=False)  # fmt: skip


def for_its_machine(call: TaskCall) -> TaskCall:
    """Return the call as on the machine that an experiment is for: it may have GPUs and more ranks than this one."""
    facts = call.facts
    if not facts.gpus:
        environ = {name: value for name, value in facts.environ.items() if name not in VISIBLE}
        facts = facts._replace(gpus=assume_gpus(_ASSUMED_GPU, _ASSUMED_GPUS), environ=environ)
    return call._replace(facts=facts, distributed=call.distributed._replace(tentative=True))


def refusal(experiment: str, settings: Mapping[str, Any], ranks: int, facts: Facts | None = None) -> PrimusError | None:
    """Return why a trial with these settings cannot be planned on this machine; None: it can."""
    from primus_train import task as train

    host = HostRoot()
    facts = facts or machine.read(host)
    gpus = 0 if hides_gpus(facts.gpus, facts.environ) else len(visible(facts.gpus, facts.environ))
    if 0 < gpus < ranks:
        return MachineError(f"it needs {ranks} GPUs, and {gpus} can be used here")
    args = arguments(experiment, [f"{name}={value}" for name, value in settings.items()])
    call = TaskCall((), args, facts, Distributed(gpus_per_node=ranks), _nowhere, Catalogue.here(host, ""))
    try:
        train.resolve(call)
    except PrimusError as error:
        return error
    return None


def as_reason(error: PrimusError) -> str:
    """Return an error about a layout as one line: its fix is for a training of one's own, and not for a trial."""
    what = error.what.removeprefix(f"{error.where}: ")  # a line of our own small experiment
    return f"{what}{f' ({error.why})' if error.why else ''}"


def _nowhere(_: str, name: str) -> RunPlace:
    return RunPlace(name, f"/nowhere/{name}", "")


def find_verifier(framework: str) -> Verifier:
    """Return what the backend `framework` tells of itself.

    Raises:
        RequestError: it tells nothing.
    """
    known = [entry.name for entry in joined.of_group(GROUP)]
    if framework not in known:
        why = f"its package has no entry point in the group {GROUP}; known: {', '.join(known)}"
        raise RequestError(f"verify does not know the framework '{framework}'", why=why,
                           fix=suggestion(framework, known) or "see docs/plugins.md")  # fmt: skip
    verifier: Verifier = joined.load(GROUP, framework)
    return verifier


def as_experiment(framework: str, settings: Mapping[str, Any], workspace: str) -> str:
    """Return the experiment file with these settings, as YAML."""
    import yaml

    model = settings.get("model") or {}
    rest = {key: value for key, value in settings.items() if key != "model"}
    module = {"framework": framework, "model": model, "overrides": rest}
    whole = {"work_group": "primus", "user_name": "verify", "exp_name": "verify", "workspace": workspace,
             "on_non_finite": "warn", "modules": {"pre_trainer": module}}  # fmt: skip
    return str(yaml.safe_dump(whole, sort_keys=False))
