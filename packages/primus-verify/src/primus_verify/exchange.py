"""One framework's part of `verify --against`, run by the Python of its environment: what it trains, and its weights.

    python -m primus_verify.exchange check FRAMEWORK MODEL.yaml FOLDER
    python -m primus_verify.exchange train FRAMEWORK MODEL.yaml FOLDER SECONDS [CHECKPOINT]
    python -m primus_verify.exchange read FRAMEWORK MODEL.yaml CHECKPOINT OUT.npz
    python -m primus_verify.exchange write FRAMEWORK MODEL.yaml CHECKPOINT IN.npz

`check` prints why the model cannot be trained, or nothing. `train` prints the checkpoint, the loss and the number of
tokens of one step, as JSON; it takes SECONDS at most.

Weights and gradients are exchanged under neutral names (`primus_verify.contract.Verifier.neutral`), in numpy's format.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from primus_core.errors import PrimusError
from primus_core.journal import summary
from primus_core.plan.plan import METRICS
from primus_machine.files.atomic import write_atomically
from primus_machine.host import HostRoot
from primus_verify import stored
from primus_verify.contract import Verifier
from primus_verify.layouts import REFERENCE, Layout
from primus_verify.resolving import as_experiment, as_reason, find_verifier, refusal
from primus_verify.trials import Trials

if TYPE_CHECKING:
    import numpy as np

    from primus_train.models.architecture import Architecture

    Array = np.ndarray[Any, Any]

__all__ = ["TEXT", "VOCABULARY", "as_neutral", "main", "with_neutral"]

VOCABULARY, _LENGTH = 512, 128
"""Tokens of the tokenizer that is made of the text; tokens of a sequence."""
_ONE = Layout(REFERENCE, {})
_MODEL = "model.yaml"
TEXT = "text"
"""The folder with the text of all frameworks, below that of the trainings."""
_ONE_MINUS_BETA1 = 0.1
"""1 - beta1 of Adam: the first moment after a step is the gradient times this."""


def _check(framework: str, model: str, folder: str) -> None:
    path, changed = _experiment(framework, model, folder)
    error = refusal(path, {**changed, **find_verifier(framework).steps(1, rate=0.0)}, 1)
    print(as_reason(error) if error else "")


def _train(framework: str, model: str, folder: str, seconds: str, start: str = "") -> None:
    """Train a step from a checkpoint; without one, with a learning rate of 0."""
    verifier = find_verifier(framework)
    path, changed = _experiment(framework, model, folder)
    trials = Trials(verifier, folder, path, HostRoot().environ, 1, float(seconds), prefix=f"{framework}-")
    run = trials.train(_ONE, start, changed)
    row = summary.read(os.path.join(run, METRICS))[0]
    found = {"checkpoint": verifier.checkpoint(run, 1), "loss": row["loss"], "tokens": row.get("tokens")}
    print(json.dumps(found))


def _experiment(framework: str, model: str, folder: str) -> tuple[str, dict[str, Any]]:
    """Write the experiment of a small model; its path, and settings beside it."""
    verifier = find_verifier(framework)
    data = {"text": os.path.join(folder, TEXT), "vocab_size": VOCABULARY, "document_chars": 512}
    settings = verifier.experiment({"data": data}, shrink=False, layouts=(), device="cpu")
    tokens = verifier.same_tokens(_LENGTH)
    absent = {"model", "vocab_size", *(name for name, value in tokens.items() if value is None)}
    rest = {key: value for key, value in settings.items() if key not in absent}
    with open(model, encoding="utf-8") as file:
        write_atomically(os.path.join(folder, _MODEL), file.read())  # an experiment names files below its own folder
    text = as_experiment(framework, {**rest, "model": f"./{_MODEL}", "data": data}, folder)
    path = os.path.join(folder, f"{framework}.yaml")
    write_atomically(path, text)
    return path, {name: value for name, value in tokens.items() if value is not None}


def _read(verifier: Verifier, model: Architecture, checkpoint: str, path: str) -> None:
    import numpy as np

    state = _neutral_state(verifier, model, checkpoint)
    arrays: dict[str, Any] = {f"{kind}:{name}": value for (kind, name), value in state.items()}
    np.savez(path, **arrays)


def _neutral_state(verifier: Verifier, model: Architecture, checkpoint: str) -> dict[tuple[str, str], Array]:
    """The weights and gradients in a checkpoint, by kind and neutral name."""
    found: dict[tuple[str, str], Array] = {}
    for (kind, name), value in stored.read(verifier, checkpoint).items():
        if kind == "second moment":
            continue
        for neutral, array, scale in _parts(verifier, name, value, model):
            # a weight that is kept divided by a number has a gradient that is multiplied by it
            found[kind, neutral] = array * scale if kind == "weight" else array / (scale * _ONE_MINUS_BETA1)
    return found


def as_neutral(verifier: Verifier, named: Mapping[str, Array], model: Architecture) -> dict[str, Array]:
    """Return weights of a framework, by its names, under neutral ones."""
    return {neutral: array * scale for name, value in named.items()
            for neutral, array, scale in _parts(verifier, name, value, model)}  # fmt: skip


def _parts(verifier: Verifier, name: str, value: Array, model: Architecture) -> list[tuple[str, Array, float]]:
    try:
        return list(verifier.neutral(name, value, model))
    except KeyError:
        why = "only weights of the kinds of Llama, Qwen, Mixtral and DeepSeek can be compared between frameworks"
        raise PrimusError(f"the weight {name} has no neutral name", why=why) from None


def _write(verifier: Verifier, model: Architecture, checkpoint: str, path: str) -> None:
    import numpy as np

    with np.load(path) as given:
        weights = {key.removeprefix("weight:"): given[key] for key in given.files if key.startswith("weight:")}
    stored.overwrite(verifier, checkpoint, lambda raw: with_neutral(verifier, raw, weights, model))


def with_neutral(
    verifier: Verifier, raw: Mapping[str, Array], weights: Mapping[str, Array], model: Architecture
) -> dict[str, Array]:
    """Return what a checkpoint stores with other weights, and zero for those that have no neutral one.

    Where each weight lies is found by giving every element a number, and to follow the numbers.

    Raises:
        PrimusError: a weight is missing, or has another shape.
    """
    import numpy as np

    raw = {name: array for name, array in raw.items()
           if any(kind == "weight" for kind, *_ in verifier.tensors({name: array}))}  # fmt: skip
    starts = np.cumsum([0, *(array.size for array in raw.values())])
    numbers = {name: np.arange(start, start + array.size).reshape(array.shape)
               for start, (name, array) in zip(starts, raw.items(), strict=False)}  # fmt: skip
    flat = np.concatenate([array.ravel() for array in raw.values()]).astype(np.float32)
    for name, places in [(name, places) for kind, name, places in verifier.tensors(numbers) if kind == "weight"]:
        if not (parts := _parts(verifier, name, places, model)):
            flat[places.ravel()] = 0.0  # a rule has moved it in the step that made the checkpoint
        for neutral, where, scale in parts:
            given = weights.get(neutral)
            if given is None or given.shape != where.shape:
                has = "none" if given is None else f"one of {list(given.shape)}"
                raise PrimusError(f"{name} is {neutral} of {list(where.shape)}", why=f"the other framework has {has}")
            flat[where.ravel()] = (given / scale).ravel()
    return {name: flat[numbers[name]] for name in raw}


def main(words: list[str]) -> int:
    """Do what the words say; the exit code.

    Raises:
        PrimusError: it cannot be done.
    """
    from primus_train.models import catalogue

    action, framework, model, *rest = words
    if action == "check":
        _check(framework, model, *rest)
    elif action == "train":
        _train(framework, model, *rest)
    else:
        do = {"read": _read, "write": _write}[action]
        do(find_verifier(framework), catalogue.find(model, {}).facts, *rest)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except PrimusError as error:
        sys.exit(" ".join(f"{error.what}: {error.why}".split()))
