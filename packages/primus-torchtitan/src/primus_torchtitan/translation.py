"""A model of the catalogue in TorchTitan: a flavor of its own, or sizes of one's own, and what its layers cannot be."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from primus_core.errors import RequestError
from primus_train.models.architecture import Architecture, Model

__all__ = ["FLAVORS", "lacks", "translate"]

_ASSETS = "assets/hf"
"""Where TorchTitan's own configurations have the files of a model's repository."""
_LLAMA3 = (1.0, 4.0, 8192)
"""Low and high frequency factor, original length: `RoPE.Config` has these, and only the factor is set."""


class Flavor(NamedTuple):
    """A model with experts, whose layers take no other sizes."""

    family: str
    flavor: str
    differs: str = ""
    """In what TorchTitan 0.3.0 departs from the catalogue."""


FLAVORS = {
    "qwen3_30B_A3B": Flavor("qwen3", "30B-A3B"),
    "qwen3_235B_A22B": Flavor("qwen3", "235B-A22B", "rotary base 5,000,000, of the 2507 release"),
    "deepseek_v2_lite": Flavor("deepseek_v3", "16B", "norms add 1e-5; attention is scaled for mscale 0.70"),
    "deepseek_v2": Flavor("deepseek_v3", "236B", "norms add 1e-5; attention is scaled for mscale 1.0"),
    "deepseek_v3": Flavor("deepseek_v3", "671B", "norms add 1e-5; no MTP layer"),
    "gpt_oss_20B": Flavor("gpt_oss", "20b"),
    "gpt_oss_120B": Flavor("gpt_oss", "120b"),
}
"""By the catalogue's names."""


class Lack(NamedTuple):
    """Something that TorchTitan's layers of the family `llama3` or `qwen3` do not have."""

    what: str
    has: Callable[[Architecture], Any]


_LACKS = (
    Lack("latent attention", lambda a: a.mla),
    Lack("an MLP without SwiGLU", lambda a: a.activation != "swiglu"),
    Lack("additional norms after attention and MLP", lambda a: a.norms_per_layer != 2),
    Lack("biases", lambda a: a.qkv_bias or a.out_bias),
    Lack("attention sinks", lambda a: a.attn_sinks),
    Lack("soft caps", lambda a: a.attn_softcap or a.logit_softcap),
    Lack("attention within windows or chunks", lambda a: a.sliding_window or a.attention_chunk),
    Lack("MTP layers", lambda a: a.mtp_layers),
    Lack("a norm of queries and keys without a weight", lambda a: a.qk_norm == "l2"),
    Lack("a head size other than dim / n_heads",
         lambda a: _is_llama(a) and a.head_dim * a.num_attention_heads != a.hidden_size),
    Lack("a norm_eps other than 1e-5 (1e-6 with norms of queries and keys)",
         lambda a: a.norm_eps != (1e-5 if _is_llama(a) else 1e-6)),
    Lack("a different scaling of the rotary embedding", lambda a: not _stretches(a)),
)  # fmt: skip


def lacks(model: Model) -> list[str]:
    """What of the model TorchTitan does not have."""
    if model.family == "llama4":
        return ["the layers of Llama 4, which TorchTitan supported until 0.2"]
    if model.facts.moe:
        return [] if model.name in FLAVORS else ["experts, and TorchTitan has no flavor for it"]
    return [lack.what for lack in _LACKS if lack.has(model.facts)]


def translate(model: Model, families: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """The `model` section that makes `model`; `families` are TorchTitan's, with the sizes of each flavor.

    Raises:
        RequestError: TorchTitan has no such model.
    """
    if missing := lacks(model):
        raise RequestError(
            f"TorchTitan cannot build {model.name}",
            why=f"the model has {'; '.join(missing)}",
            fix="another backend may have them, or name a module of yours as `model.family`",
        )
    facts = model.facts
    assets = {"hf_assets_path": posixpath.join(_ASSETS, posixpath.basename(facts.hf))} if facts.hf else {}
    if known := FLAVORS.get(model.name):
        return {"family": known.family, "flavor": known.flavor, **assets}
    family = "llama3" if _is_llama(facts) else "qwen3"
    sizes = dict(_sizes(facts))
    equal = (flavor for flavor, theirs in families[family].items() if _is(theirs, facts, sizes))
    if flavor := next(equal, None):
        return {"family": family, "flavor": flavor, **assets}
    return {"family": family, **sizes, **assets}


def _sizes(a: Architecture) -> Iterator[tuple[str, Any]]:
    yield "dim", a.hidden_size
    yield "n_layers", a.num_layers
    yield "n_heads", a.num_attention_heads
    yield "n_kv_heads", a.num_kv_heads
    if not _is_llama(a):
        yield "head_dim", a.head_dim
    yield "vocab_size", a.vocab_size
    yield "ffn_hidden_dim", a.ffn_hidden_size
    yield "rope_theta", a.rope_theta
    yield "rope_scaling", "llama" if a.rope_scaling else "none"
    if a.rope_scaling:
        yield "rope_scaling_factor", a.rope_scaling.factor
    yield "max_seq_len", a.max_position_embeddings
    yield "weight_tying", a.tie_embeddings


def _is(flavor: Mapping[str, Any], a: Architecture, sizes: Mapping[str, Any]) -> bool:
    """Whether a flavor has these sizes. Those that stretch the rotary embedding do so by 8; heads of Qwen are 128."""
    rest = (sizes.get("rope_scaling_factor", 8.0), sizes.get("head_dim", 128))
    return rest == (8.0, 128) and all(flavor[name] == sizes[name] for name in flavor if name in sizes)


def _is_llama(a: Architecture) -> bool:
    return a.qk_norm != "rms"


def _stretches(a: Architecture) -> bool:
    """Whether TorchTitan stretches the rotary embedding as the model does."""
    s = a.rope_scaling
    if s is None or not _is_llama(a):
        return s is None
    return s.rope_type == "llama3" and (s.low_freq_factor, s.high_freq_factor, s.original_max_position) == _LLAMA3
