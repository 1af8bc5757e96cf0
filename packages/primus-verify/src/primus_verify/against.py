"""`verify --against FRAMEWORK`: one small model under two frameworks, with the same weights and tokens.

Compared are the loss of the first step and every gradient, by neutral names. Each framework runs in its own Python.
"""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from primus_core.errors import MachineError, PrimusError, RequestError, TrainingError
from primus_machine.processes import end_with_parent
from primus_verify import verdict
from primus_verify.comparison import Step, Tolerance, beyond, compare, worst
from primus_verify.exchange import VOCABULARY
from primus_verify.layouts import Layout
from primus_verify.session import Result

if TYPE_CHECKING:
    from primus_train.models.architecture import Model
    from primus_verify.stored import State

__all__ = ["Side", "compare_sides", "small_model"]

_HEADS, _HEAD, _LAYERS, _LENGTH = 4, 16, 4, 1024
_SLACK = 4.0
"""Two frameworks also order the sums inside their kernels differently."""


def small_model(model: Model) -> str:
    """Return a small model of the same kind, as a file of the catalogue.

    Raises:
        RequestError: its weights have no neutral names.
    """
    import yaml

    facts = model.facts
    if facts.moe or facts.mla or facts.activation != "swiglu" or facts.norms_per_layer != 2 or facts.mtp_layers:
        raise RequestError(
            f"--against cannot compare {model.name}",
            why="neutral names are known of dense models with SwiGLU and two norms in a layer",
            fix="choose one such as llama3.1_8B or qwen3_8B",
        )
    heads = _HEADS if facts.num_kv_heads == facts.num_attention_heads else 2 * _HEADS
    sizes: dict[str, Any] = {
        "num_layers": _LAYERS, "hidden_size": heads * _HEAD, "ffn_hidden_size": 2 * heads * _HEAD,
        "num_attention_heads": heads, "num_kv_heads": _HEADS, "head_dim": _HEAD, "vocab_size": VOCABULARY,
        "max_position_embeddings": _LENGTH, "rope_theta": facts.rope_theta, "norm_eps": facts.norm_eps,
        "tie_embeddings": facts.tie_embeddings, "qkv_bias": facts.qkv_bias, "qk_norm": facts.qk_norm,
    }  # fmt: skip
    if facts.rope_scaling:
        scaling = facts.rope_scaling
        sizes["rope_scaling"] = {name: value for name in scaling.__slots__
                                 if (value := getattr(scaling, name)) is not None and name != "truncate"}  # fmt: skip
    entry = {"source": [f"{model.name}, made small"], **sizes}
    return str(yaml.safe_dump({"family": model.family, "models": {f"{model.name}_small": entry}}, sort_keys=False))


@dataclass(frozen=True, slots=True)
class Side:
    """One framework, in its own Python."""

    framework: str
    python: str
    model: str
    """The file of the small model."""
    folder: str
    environ: Mapping[str, str]

    def train(self, start: str = "") -> Trained:
        """Train a step from a checkpoint; without one, make it: with a learning rate of 0."""
        found = json.loads(self.exchange("train", self.folder, *([start] if start else [])).splitlines()[-1])
        loss = math.nan if found["loss"] is None else found["loss"]
        return Trained(found["checkpoint"], loss, int(found["tokens"] or 1))

    def state(self, checkpoint: str) -> State:
        """Return weights and gradients under neutral names."""
        import numpy as np

        self.exchange("read", checkpoint, self.weights)
        with np.load(self.weights) as found:
            return {tuple(key.split(":", 1)): found[key] for key in found.files}

    @property
    def weights(self) -> str:
        """The file of what `state` read last."""
        return f"{self.folder}/{self.framework}.npz"

    def exchange(self, action: str, *words: str) -> str:
        """Run `primus_verify.exchange` in this framework's Python; what it printed.

        Raises:
            TrainingError: it failed, with what it printed.
        """
        command = [self.python, "-m", "primus_verify.exchange", action, self.framework, self.model, *words]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  env=dict(self.environ), check=False, preexec_fn=end_with_parent)  # fmt: skip
        except OSError as error:
            raise MachineError(f"'{self.python}' cannot be started", why=error.strerror or "",
                               fix="--against-python names the Python of an environment") from None  # fmt: skip
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
            raise TrainingError(f"{self.framework}: {action} failed", why=last[0], fix=f"read {self.folder}")
        return done.stdout


class Trained(NamedTuple):
    """A step."""

    checkpoint: str
    loss: float
    tokens: int


def compare_sides(first: Side, second: Side, rtol: float | None, say: Callable[[str], None]) -> Result:
    """Return how the second framework differs from the first, in the loss and the gradients of one step.

    Raises:
        PrimusError: the first cannot be trained.
    """
    say(f"{first.framework}: training a small model ...")
    start = first.train().checkpoint
    right = first.train(start)
    right_state = first.state(right.checkpoint)
    initial = first.state(start)  # last: its file is what the other side reads
    layout = Layout(second.framework, {})
    try:
        say(f"{second.framework}: training it from the same weights ...")
        begin = second.train().checkpoint
        second.exchange("write", begin, first.weights)
        other = second.train(begin)
        other_state = second.state(other.checkpoint)
    except PrimusError as error:
        return Result(layout, "failed", why=f"{error.what}: {error.why}")
    tolerance = Tolerance(rtol or _SLACK * Tolerance.of_reduction(right.tokens).rtol)
    mine, theirs = (
        [Step(one.loss, None, partial(dict, state))] for one, state in ((right, right_state), (other, other_state))
    )
    found = [one for one in compare(mine, theirs, initial, tolerance) if one.quantity in ("loss", "gradient")]
    names = {"first moment": [name for kind, name in right_state if kind == "first moment"]}
    findings = tuple(verdict.describe(beyond(found), {}, names))
    return Result(layout, "differs" if findings else "equal", findings, worst=worst(found))
