"""Hybrid models: Mamba and gated delta net layers beside attention, as Megatron's `hybrid_layer_pattern` lists them.

AMD's fork of Megatron names a class of layers in `spec`, and derives the order of layers from a ratio.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from primus_core.config.document import Document, Path
from primus_core.errors import ConfigError
from primus_core.plan.plan import Requirement
from primus_megatron.settings import Settings

__all__ = ["PATTERN", "check_hybrid", "refusal", "translate"]

PATTERN, _OLD = "hybrid_layer_pattern", "hybrid_override_pattern"
_MAMBA, _DELTA, _ATTENTION, _LATENT, _MLP = "M", "G", "*", "+", "-"
_SYMBOLS = f"{_MAMBA}{_DELTA}{_ATTENTION}D{_LATENT}{_MLP}E"
_SINCE = (0, 19)
"""Before, Megatron has no symbols for gated delta nets and latent attention."""
_FORK = "primus.backends.megatron.core.models."
_ASKED = (
    "model_type", "spec", "is_hybrid_model", "hybrid_attention_ratio", "hybrid_mlp_ratio", _OLD,
    "mamba_expand", PATTERN,
)  # fmt: skip


class _Stack(NamedTuple):
    """A specification of layers in AMD's fork."""

    mixer: str
    has_mlps: bool
    expand: int = 2
    """How many times wider than the model a Mamba layer is."""


_STACKS = {
    "mamba_stack_spec": _Stack(_MAMBA, has_mlps=False),
    "hybrid_stack_spec": _Stack(_MAMBA, has_mlps=True, expand=1),
    "mamba_hybrid_stack_spec": _Stack(_MAMBA, has_mlps=True),
    "gdn_hybrid_stack_spec": _Stack(_DELTA, has_mlps=True),
}
"""With the suffix `_no_te`, the same layers without Transformer Engine."""


def translate(document: Document) -> tuple[Document, tuple[str, ...]]:
    """Return `document` with a hybrid model of AMD's fork in Megatron's settings, and what to tell about it.

    Raises:
        ConfigError: its layers are in AMD's fork alone.
    """
    data = document.data
    if data.get("model_type") != "mamba":
        return document, ()
    name = _layers_of(data.get("spec"))
    if (stack := _STACKS.get(name.removesuffix("_no_te"))) is None:
        shown = f"spec: {name}" if name else "model_type: mamba"
        raise refusal(
            f"Primus cannot do '{shown}' of AMD's fork of Megatron",
            document.where(("spec",) if name else ("model_type",)),
            why="these layers are in AMD's fork alone; megatron-core has Mamba and gated delta net layers",
            fix=f"set spec to one of: {', '.join(_STACKS)}",
        )
    pattern = _pattern(data, stack)
    found: dict[str, Any] = {PATTERN: pattern}
    if _LATENT in pattern:
        found["qk_layernorm"] = True  # the fork normalizes what latent attention compresses
    if stack.mixer == _MAMBA and stack.expand == 1 and not data.get("mamba_num_heads"):
        found["mamba_num_heads"] = _number(data, "hidden_size") // (_number(data, "mamba_head_dim") or 64)
    kept = {key: value for key, value in data.items() if key not in _ASKED}
    marks: dict[Path, str] = {(key,): document.where(("spec",)) for key in found}
    differs = {
        "gated delta nets begin with Megatron's own A and dt, not with those of AMD's fork": _DELTA in pattern,
        "what latent attention compresses is normalized once; AMD's fork does so twice with Transformer Engine": (
            _LATENT in pattern and not name.endswith("_no_te")
        ),
    }
    notes = tuple(note for note, applies in differs.items() if applies)
    return Document({**kept, **found}, {**document.marks, **marks}, document.files), notes


def refusal(what: str, where: str, *, why: str, fix: str) -> ConfigError:
    """Return the error about what no setting can mend."""
    error = ConfigError(what, where=where, why=why, fix=fix)
    error.is_final = True
    return error


def _layers_of(spec: object) -> str:
    """Return the name of a specification of AMD's fork: `[module, name]`, or the name alone."""
    if isinstance(spec, str):
        return spec
    words = spec if isinstance(spec, list) else [""]
    return str(words[-1]) if str(words[0]).startswith(_FORK) else ""


def _pattern(data: Mapping[str, Any], stack: _Stack) -> str:
    """Return the layers: as listed, or as AMD's fork orders them."""
    if given := data.get(PATTERN) or data.get(_OLD):
        return str(given).replace(_MAMBA, stack.mixer).replace(_ATTENTION, _LATENT)
    layers = _number(data, "num_layers")
    if not stack.has_mlps:
        return stack.mixer * layers
    pairs = layers // 2
    attention = int(pairs * _ratio(data))
    mixers = pairs - attention
    mixer, latent = f"{stack.mixer}{_MLP}", f"{_LATENT}{_MLP}"
    if not attention:
        return mixer * pairs
    if attention > mixers:
        return latent * (attention - mixers) + (latent + mixer) * mixers
    return (latent + mixer * (mixers // attention)) * attention + mixer * (mixers % attention)


def _number(data: Mapping[str, Any], name: str) -> int:
    """Return a setting, or 0 where it is missing or wrong: all settings are checked later."""
    value = data.get(name)
    return value if type(value) is int else 0


def _ratio(data: Mapping[str, Any]) -> float:
    value = data.get("hybrid_attention_ratio")
    return float(value) if isinstance(value, int | float) else 0.0


def check_hybrid(settings: Settings, version: str, device: str) -> list[Requirement]:
    """Check the layers of a hybrid model, and return the packages that they need.

    Raises:
        ConfigError: Megatron or the device does not have such layers.
    """
    name = next((one for one in (PATTERN, _OLD) if settings.knows(one) and settings[one]), "")
    if not name:
        return []
    pattern = settings[name]
    layers = pattern.partition("/")[0].replace("|", "")
    if wrong := set(layers) - set(_SYMBOLS):
        what = f"'{name}' has unknown layers: {', '.join(sorted(wrong))}"
        raise settings.error(name, what, fix=f"write one of {' '.join(_SYMBOLS)} for each layer")
    if len(layers) != settings["num_layers"]:
        what = f"'{name}' has {len(layers)} layers, and num_layers is {settings['num_layers']}"
        raise settings.error(name, what, fix="set both, or the same number")
    if tuple(int(part) for part in version.split(".")[:2]) < _SINCE:
        what = f"hybrid models need megatron-core {'.'.join(map(str, _SINCE))}"
        raise settings.error(name, what, why=f"this is {version}", fix="install a newer one")
    if _MAMBA in layers and device == "cpu":
        why = "Mamba's kernels (mamba_ssm) are written for GPUs"
        raise settings.error(name, "Mamba layers need a GPU", why=why, fix="train it on a GPU")
    stages = settings["pipeline_model_parallel_size"]
    if "|" not in pattern and len(layers) % stages:
        what = f"pipeline_model_parallel_size {stages} does not divide the {len(layers)} layers of {name}"
        raise settings.error(name, what, fix="take a divisor, or write | between the stages")
    return _packages(layers, device)


def _packages(layers: str, device: str) -> list[Requirement]:
    wanted = {"mamba_ssm": _MAMBA in layers, "fla": _DELTA in layers and device == "gpu"}
    fixes = {"mamba_ssm": "pip install mamba-ssm", "fla": "pip install flash-linear-attention"}
    return [Requirement("module", name, fixes[name]) for name, needed in wanted.items() if needed]
