"""What a training is about, in no framework's words: by this, `primus runs diff` compares runs of different frameworks.

A backend fills in what it knows, and stores `to_dict()` under `hyperparameters` in its plan's `config`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from primus_train.models.architecture import Architecture

__all__ = ["NAMES", "Hyperparameters"]

_OF_MODEL = (
    "num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_kv_heads", "head_dim", "vocab_size",
    "rope_theta", "norm_eps", "tie_embeddings", "qk_norm",
)  # fmt: skip
"""Facts of a model that every backend's `architecture` has; of others (activation, stretching) not all tell."""
_OF_EXPERTS = ("num_experts", "topk", "moe_ffn_hidden_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hyperparameters:
    """None: the backend does not know it, or its framework has no such thing; then it is not compared."""

    model: Architecture | None = None
    """As the catalogue would describe it: its facts, and how many parameters follow from them."""
    seq_length: int | None = None
    global_batch_size: int | None = None
    """Sequences of an optimizer step, over all ranks."""
    micro_batch_size: int | None = None
    """Sequences that a rank takes at once."""
    steps: int | None = None
    optimizer: str | None = None
    """As its authors call it: `AdamW`, `Muon`."""
    lr: float | None = None
    """After warm-up."""
    min_lr: float | None = None
    """At the end of the decay."""
    warmup_steps: int | None = None
    stable_steps: int | None = None
    """Between warm-up and decay."""
    decay: str | None = None
    """How the learning rate falls: `constant`, `linear`, `cosine`, ..."""
    schedule_steps: int | None = None
    """After how many steps it has fallen, those of warm-up included."""
    beta1: float | None = None
    beta2: float | None = None
    eps: float | None = None
    weight_decay: float | None = None
    grad_clip: float | None = None
    """The norm above which gradients are scaled down; 0: they are not."""
    dtype: str | None = None
    """In which most is multiplied: `fp32`, `bf16`, `fp16`, `fp8`."""
    seed: int | None = None
    text: str | None = None
    """`data.text`, where Primus prepares it."""
    document_chars: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data: `parameters`, the model's facts by the catalogue's names, and the fields."""
        rest = asdict(self)  # a model of pydantic stays what it is
        del rest["model"]
        return {name: _rounded(value) for name, value in {**_facts(self.model), **rest}.items()}


def _facts(model: Architecture | None) -> dict[str, Any]:
    if model is None:
        return {"parameters": None}
    from primus_train.models.arithmetic import parameters

    experts = {name: getattr(model.moe, name) for name in _OF_EXPERTS} if model.moe else {}
    return {"parameters": parameters(model).total, **{name: getattr(model, name) for name in _OF_MODEL}, **experts}


def _rounded(value: Any) -> Any:
    """One framework has `min_lr: 3e-4`, another a tenth of 3e-3."""
    return float(f"{value:.9g}") if isinstance(value, float) else value


NAMES = ("parameters", *_OF_MODEL, *_OF_EXPERTS, *(field.name for field in fields(Hyperparameters)[1:]))
"""All of them, in the order in which one reads them."""
