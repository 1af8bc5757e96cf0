"""The `model` section: a flavor of a family that TorchTitan has, or sizes of one's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from primus_core.config.document import Document
from primus_core.errors import ConfigError, Mistakes, nearest, suggestion
from primus_torchtitan import small_experts
from primus_torchtitan.own_settings import MODEL
from primus_torchtitan.schema import Schema
from primus_train.kit.settings import own_section
from primus_train.overrides import is_typed

__all__ = ["Model", "resolve_model"]

_SIZED = ("llama3", "qwen3")
"""Families whose layers take any sizes."""
_ELSEWHERE = {"llama4": "train it with Megatron: primus config new llama4_scout_17B16E --backend megatron --gpu MI300X"}
"""Families that earlier versions of TorchTitan had."""
_NOT_SIZES = ("family", "flavor", "attn_backend", "hf_assets_path")
_NEEDED = ("dim", "n_layers", "n_heads", "vocab_size")
_FROM_FLAVOR = (
    *_NEEDED, "n_kv_heads", "ffn_hidden_dim", "rope_theta", "rope_scaling", "rope_scaling_factor", "max_seq_len",
    "weight_tying",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Model:
    """A model as planned. `facts` has the sizes that are known of it (none for a module of one's own)."""

    family: str
    flavor: str | None
    sizes: Mapping[str, Any] | None
    attn_backend: str | None
    hf_assets_path: str | None
    facts: Mapping[str, Any]

    @property
    def name(self) -> str:
        """For people: `llama3 8B`."""
        return f"{self.family} {self.flavor or 'with own sizes'}"

    @property
    def takes_sizes(self) -> bool:
        """Whether sizes of one's own may be set, such as the vocabulary's."""
        return self.family in _SIZED and not self.facts.get("experts")

    def to_dict(self) -> dict[str, Any]:
        """What the worker needs, and what a later run compares."""
        sizes = None if self.sizes is None else dict(self.sizes)
        return {"family": self.family, "flavor": self.flavor, "sizes": sizes, "attn_backend": self.attn_backend}


def resolve_model(document: Document, schema: Schema, vocab_of_data: int | None, tensor: int = 1) -> Model:
    """The model in the `model` section. `vocab_of_data` is the vocabulary where the section has none.

    Numbers of heads are proposed that `tensor` parallelism divides.

    Raises:
        ConfigError: it names no family or flavor that exists, or sizes that make no model.
    """
    given = own_section(document, MODEL, "model", "TorchTitan")
    family, flavor = given.get("family"), given.get("flavor")
    where = _Places(document)
    if not family:
        raise ConfigError(
            "the model has no family",
            where=where("family"),
            fix=f"set `model.family` to one of {', '.join(schema.families)}",
        )
    flavors = _flavors(family, schema, where)
    flavor = {name.lower(): name for name in flavors}.get(str(flavor).lower(), flavor)
    _check_flavor(family, flavor, flavors, where)
    own = {name: value for name, value in given.items() if name not in _NOT_SIZES and value is not None}
    is_small = family == small_experts.__name__
    base = dict(small_experts.facts(str(flavor)) if is_small else flavors.get(str(flavor), {}))
    sizes = _sizes(own, base, family, vocab_of_data, where, tensor) if own or not flavor else None
    return Model(
        family=family,
        flavor=flavor,
        sizes=sizes,
        attn_backend=given.get("attn_backend"),
        hf_assets_path=given.get("hf_assets_path"),
        facts={**sizes, "experts": 0} if sizes else base,
    )


class _Places:
    """Where a key of the section stands."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def __call__(self, *keys: str) -> str:
        """Return the place of the first of these that was typed, or of the first."""
        places = [self.document.where((key,)) for key in keys]
        return next(filter(is_typed, places), places[0])


def _flavors(family: str, schema: Schema, where: _Places) -> Mapping[str, Mapping[str, Any]]:
    if family in schema.families:
        return schema.families[family]
    if "." in family:
        return {}  # a module of one's own: its flavors are its to know
    near = nearest(family, schema.families)
    # Another number is another model, and no misspelling.
    is_misspelt = bool(near) and (_letters(near) != _letters(family) or _letters(family) == family)
    dotted = "use one of them, or the dotted name of a module that has a `model_registry`"
    raise ConfigError(
        f"TorchTitan {schema.version} has no model family '{family}'",
        where=where("family"),
        why=f"known families: {', '.join(schema.families)}",
        fix=f"did you mean '{near}'?" if is_misspelt else _ELSEWHERE.get(family, dotted),
    )


def _letters(name: str) -> str:
    return re.sub("[0-9_]", "", name)


def _check_flavor(family: str, flavor: str | None, flavors: Mapping[str, Any], where: _Places) -> None:
    if flavor is None and "." in family:
        raise ConfigError(f"the model '{family}' needs a flavor", where=where("family"), fix="set `model.flavor`")
    if flavor is not None and flavors and flavor not in flavors:
        raise ConfigError(
            f"{family} has no flavor '{flavor}'",
            where=where("flavor"),
            why=f"known flavors: {', '.join(flavors)}",
            fix=suggestion(flavor, flavors) or "use one of them",
        )


def _sizes(
    own: Mapping[str, Any], base: dict[str, Any], family: str, vocab: int | None, where: _Places, tensor: int
) -> dict[str, Any]:
    """All sizes of a model of one's own: what was given over the flavor's, or over defaults."""
    if family not in _SIZED or base.get("experts"):
        raise ConfigError(
            f"you can set sizes for {' and '.join(_SIZED)} without experts, not for {family}",
            where=where(next(iter(own), "family")),
            fix="use a flavor without sizes",
        )
    defaults = {row.name: row.default for row in MODEL if row.name in _FROM_FLAVOR}
    inherited = {name: base[name] for name in _FROM_FLAVOR if base.get(name) is not None}
    sizes = {**defaults, **inherited, **{name: own[name] for name in _FROM_FLAVOR if name in own}}
    if sizes["vocab_size"] is None or ("vocab_size" not in own and vocab and not base):
        sizes["vocab_size"] = vocab
    _check_needed(sizes, where)
    if sizes["n_kv_heads"] is None or ("n_heads" in own and "n_kv_heads" not in own and base):
        sizes["n_kv_heads"] = own.get("n_kv_heads", sizes["n_heads"])
    sizes["ffn_hidden_dim"] = _ffn(own, sizes, base)
    if family == "qwen3":
        sizes["head_dim"] = own.get("head_dim", 128)
    _check_heads(sizes, family, where, tensor)
    return sizes


def _check_needed(sizes: Mapping[str, Any], where: _Places) -> None:
    missing = [name for name in _NEEDED if sizes.get(name) is None]
    if missing:
        raise ConfigError(
            f"the model has no {' and no '.join(missing)}",
            where=where("family"),
            why="a model is a flavor, or has dim, n_layers, n_heads and vocab_size",
            fix=" and ".join(f"set `model.{name}`" for name in missing)
            if len(missing) < len(_NEEDED)
            else "set `model.flavor`",
        )


def _ffn(own: Mapping[str, Any], sizes: Mapping[str, Any], base: Mapping[str, Any]) -> int:
    """The feed-forward width: as given, as the flavor's, or by Llama's rule (8/3 dim, rounded up)."""
    if "ffn_hidden_dim" in own:
        return int(own["ffn_hidden_dim"])
    ruled = {"dim", "multiple_of", "ffn_dim_multiplier"} & set(own)
    if base and not ruled:
        return int(sizes["ffn_hidden_dim"])
    multiple = int(own.get("multiple_of", 256))
    width = int(own.get("ffn_dim_multiplier", 1.0) * int(8 * sizes["dim"] / 3))
    return multiple * -(-width // multiple)


def _check_heads(sizes: Mapping[str, Any], family: str, where: _Places, tensor: int) -> None:
    """Refuse heads that do not fit, all mistakes at once, with numbers that fit."""
    dim, heads, kv_heads = sizes["dim"], sizes["n_heads"], sizes["n_kv_heads"]
    mistakes, fix = Mistakes(), _other_heads(sizes, family, tensor)
    is_split = family == "llama3" and bool(dim % heads)
    width = sizes.get("head_dim") or dim // heads
    if is_split:
        what = f"dim {dim} cannot be split into {heads} heads"
        mistakes.add(ConfigError(what, where=where("n_heads", "dim"), fix=fix))
    elif width % 2:
        what = f"a head would be {width} wide, and the rotary embedding needs an even width"
        at = where("head_dim") if sizes.get("head_dim") else where("n_heads", "dim")
        mistakes.add(ConfigError(what, where=at, fix=fix))
    if heads % kv_heads:
        what = f"{heads} attention heads cannot share {kv_heads} heads of keys and values"
        mistakes.add(ConfigError(what, where=where("n_kv_heads", "n_heads"), fix=fix))
    mistakes.refuse()


def _other_heads(sizes: Mapping[str, Any], family: str, tensor: int) -> str:
    """Propose the nearest numbers of heads that fit dim, each other and tensor parallelism, and an even width."""
    dim, heads, kv_heads, width = sizes["dim"], sizes["n_heads"], sizes["n_kv_heads"], sizes.get("head_dim")
    half = -(-dim // 2)  # a number that divides it leaves heads of an even width
    possible = [n for n in range(1, half + 1) if half % n == 0]
    if family != "llama3":
        possible = [-(-heads // tensor) * tensor]  # heads have a width of their own
    shared = [n for n in possible if n % kv_heads == 0 and kv_heads % tensor == 0]
    fit = shared or [n for n in possible if n % tensor == 0] or possible
    nearest_heads = min(fit, key=lambda n: abs(n - heads))
    groups = [n for n in range(1, nearest_heads + 1) if nearest_heads % n == 0]
    groups = [n for n in groups if n % tensor == 0] or groups
    nearest_groups = min(groups, key=lambda n: abs(n - kv_heads))
    even = [f"model.head_dim={width + 1}"] if width and width % 2 else []
    even += [f"model.dim={dim + 1}"] if family == "llama3" and dim % 2 else []
    return " ".join([*even, f"model.n_heads={nearest_heads}", f"model.n_kv_heads={nearest_groups}"])
