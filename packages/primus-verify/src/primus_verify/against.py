"""`verify --against FRAMEWORK`: one small model under two frameworks, with the same weights and tokens.

Compared are the loss of the first step and every gradient, by neutral names. Each framework runs in its own Python.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from primus_core.errors import MachineError, PrimusError, RequestError, TrainingError
from primus_machine.units import time_span
from primus_verify import verdict
from primus_verify.comparison import Step, Tolerance, beyond, compare, worst
from primus_verify.exchange import TEXT, VOCABULARY
from primus_verify.layouts import Layout
from primus_verify.lifeline import ending_with_parent
from primus_verify.session import Result, Status

if TYPE_CHECKING:
    from primus_train.models.architecture import Architecture, Model
    from primus_verify.stored import State

__all__ = ["Side", "compare_sides", "small_model"]

_HEADS, _HEAD, _ROTARY, _RANK, _EXPERTS, _EXPERT = 4, 16, 8, 32, 4, 64
_LAYERS, _LENGTH = 4, 1024
_KEPT = ("rope_theta", "norm_eps", "tie_embeddings", "qkv_bias", "qk_norm")
"""Facts of the small model that are those of the large one."""
_WITHOUT_NAMES: Mapping[str, Callable[[Architecture], object]] = {
    "an activation other than SwiGLU": lambda a: a.activation != "swiglu",
    "additional norms after attention and MLP": lambda a: a.norms_per_layer != 2,
    "attention within windows or chunks": lambda a: a.sliding_window or a.attention_chunk,
    "attention sinks": lambda a: a.attn_sinks,
    "soft caps": lambda a: a.attn_softcap or a.logit_softcap,
    "biases after attention or in experts": lambda a: a.out_bias or (a.moe and (a.moe.mlp_bias or a.moe.router_bias)),
    "experts in some layers only": lambda a: a.moe and a.moe.moe_layer_step > 1,
}
"""What models have that cannot be compared."""
_MODULES = ("email", "json")


def small_model(model: Model) -> str:
    """Return a small model of the same kind, as a file of the catalogue.

    Raises:
        RequestError: its weights have no neutral names.
    """
    import yaml

    if missing := [what for what, has in _WITHOUT_NAMES.items() if has(model.facts)]:
        raise RequestError(
            f"--against cannot compare {model.name}",
            why=f"the model has {', '.join(missing)}, and weights of that kind have no neutral names",
            fix="choose one such as llama3.1_8B, qwen3_8B, mixtral_8x7B or deepseek_v2_lite",
        )
    entry = {"source": [f"{model.name}, made small"], **_sizes(model.facts)}
    return str(yaml.safe_dump({"family": model.family, "models": {f"{model.name}_small": entry}}, sort_keys=False))


def _sizes(facts: Architecture) -> dict[str, Any]:
    """The facts with small numbers."""
    kept = {name: value for name in _KEPT if (value := getattr(facts, name)) is not None}
    heads = _HEADS if facts.num_kv_heads == facts.num_attention_heads else 2 * _HEADS
    sizes = {
        **kept, "num_layers": _LAYERS, "hidden_size": heads * _HEAD, "ffn_hidden_size": 2 * heads * _HEAD,
        "num_attention_heads": heads, "num_kv_heads": _HEADS, "head_dim": _HEAD, "vocab_size": VOCABULARY,
        # MaxText scales attention of stretched models only if this is more than they were trained with
        "max_position_embeddings": facts.max_position_embeddings if facts.rope_scaling else _LENGTH,
    }  # fmt: skip
    if scaling := facts.rope_scaling:
        sizes["rope_scaling"] = _given(scaling, without=("truncate",))
    if moe := facts.moe:
        small = {"num_experts": _EXPERTS, "topk": min(moe.topk, 2), "moe_ffn_hidden_size": _EXPERT}
        small |= {"shared_expert_ffn": _EXPERT} if moe.shared_expert_ffn else {}
        small |= {"first_k_dense": 1} if moe.first_k_dense else {}
        small |= {"n_group": 2, "topk_group": 1} if moe.n_group > 1 else {}
        sizes["moe"] = _given(moe) | small
    if mla := facts.mla:
        latent = {"kv_lora_rank": _RANK, "qk_nope_head_dim": _HEAD, "qk_rope_head_dim": _ROTARY, "v_head_dim": _HEAD}
        sizes["mla"] = latent | ({"q_lora_rank": _RANK} if mla.q_lora_rank else {})
        sizes |= {"num_kv_heads": heads, "head_dim": _HEAD + _ROTARY}
    return sizes


def _given(facts: Any, without: Sequence[str] = ()) -> dict[str, Any]:
    return {name: value for name in facts.__slots__
            if name not in without and (value := getattr(facts, name)) is not None}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Side:
    """One framework, in its own Python."""

    framework: str
    python: str
    model: str
    """The file of the small model."""
    folder: str
    environ: Mapping[str, str]
    say: Callable[[str], None]
    timeout_s: float
    """Of the training, and of reading and writing weights."""

    def refusal(self) -> str:
        """Return why it cannot train the small model; empty: it can.

        Raises:
            MachineError: its Python has no Primus, or not this backend.
        """
        try:
            why = self.exchange("check", self.folder).strip()
        except TrainingError as error:
            fix = "install primus-verify and the backend there, or name another Python: --against-python PATH"
            raise MachineError(f"{self.python} cannot plan a training", why=error.why, fix=fix) from None
        return f"{self.framework}: {why}" if why else ""

    def train(self, start: str = "") -> Trained:
        """Train a step from a checkpoint; without one, make it: with a learning rate of 0."""
        self.say(f"{self.framework}: training a step of the small model{' from the same weights' * bool(start)} ...")
        words = (str(self.timeout_s), *([start] if start else []))
        found = json.loads(self.exchange("train", self.folder, *words).splitlines()[-1])
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
            TrainingError: it failed, with what it printed, or took too long.
        """
        fix = f"read {self.folder}"
        limit_s = None if action == "train" else self.timeout_s  # the training's own limit ends it in good order
        command = [self.python, "-m", "primus_verify.exchange", action, self.framework, self.model, *words]
        try:
            done = subprocess.run(ending_with_parent(command), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  env=dict(self.environ), timeout=limit_s, check=False)  # fmt: skip
        except subprocess.TimeoutExpired:
            why = f"it took longer than {time_span(self.timeout_s)} (--timeout)"
            raise TrainingError(f"{self.framework}: {action} failed", why=why, fix=fix) from None
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
            raise TrainingError(f"{self.framework}: {action} failed", why=last[0], fix=fix)
        return done.stdout


class Trained(NamedTuple):
    """A step."""

    checkpoint: str
    loss: float
    tokens: int


def _write_text(folder: str) -> None:
    """Copy some modules of Python: another interpreter has others."""
    for module in _MODULES:
        place = os.path.join(sysconfig.get_path("stdlib"), module)
        shutil.copytree(place, os.path.join(folder, module), ignore=shutil.ignore_patterns("__pycache__"))


def compare_sides(first: Side, second: Side, rtol: float | None) -> Result:
    """Return how the second framework differs from the first, in the loss and the gradients of one step.

    The first step of both, with a learning rate of 0, runs at the same time. A checkpoint of it has the weights that it
    began with, and the gradients.

    Raises:
        MachineError: a Python has not its framework's backend.
        PrimusError: the first cannot be trained.
    """
    layout = Layout(second.framework, {})
    _write_text(os.path.join(first.folder, TEXT))
    if why := first.refusal() or second.refusal():
        return Result(layout, "not tried", why=why)
    begun = time.monotonic()
    with ThreadPoolExecutor() as pool:
        beginning = pool.submit(second.train)
        right = first.train()
        state = first.state(right.checkpoint)
        try:
            begin = beginning.result().checkpoint
            second.exchange("write", begin, first.weights)
            other = second.train(begin)
            other_state = second.state(other.checkpoint)
        except PrimusError as error:
            return Result(layout, "failed", why=f"{error.what}: {error.why}", seconds=time.monotonic() - begun)
    tolerance = Tolerance(rtol) if rtol else Tolerance.of_reduction(right.tokens)
    mine, theirs = (
        [Step(one.loss, None, partial(dict, state))] for one, state in ((right, state), (other, other_state))
    )
    found = [one for one in compare(mine, theirs, state, tolerance) if one.quantity in ("loss", "gradient")]
    names = {"first moment": [name for kind, name in state if kind == "first moment"]}
    findings = tuple(verdict.describe(beyond(found), {}, names, verdict.ASKED if rtol else verdict.ROUNDING))
    status: Status = "differs" if findings else "equal"
    return Result(layout, status, findings, seconds=time.monotonic() - begun, worst=worst(found))
