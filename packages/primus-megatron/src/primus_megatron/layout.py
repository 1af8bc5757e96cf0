"""How ranks share the work, checked before anything starts: Megatron would say it on every rank, after the queue."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from primus_megatron.settings import Settings
from primus_train.kit.degrees import OTHER_RANKS, either, narrow, ones, passes
from primus_train.overrides import is_typed

__all__ = ["Layout", "check_layout"]

_TENSOR, _PIPELINE = "tensor_model_parallel_size", "pipeline_model_parallel_size"
_CONTEXT, _EXPERT = "context_parallel_size", "expert_model_parallel_size"
_ENDS = ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers")
_UNEVEN = (
    "pipeline_model_parallel_layout", *_ENDS,
    "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split", "hybrid_layer_pattern",
)  # fmt: skip
"""With one of these, stages need not have equal numbers of layers."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes of the groups; tensor x pipeline x context x data is the number of ranks."""

    tensor: int
    pipeline: int
    context: int
    data: int
    stages_inside_data: bool
    """Ranks of one pipeline are neighbours of those of another, not of their own (`use_tp_pp_dp_mapping`)."""

    @property
    def world_size(self) -> int:
        """All ranks."""
        return self.tensor * self.pipeline * self.context * self.data

    def sizes(self) -> dict[str, int]:
        """By name, for people."""
        return {"tensor": self.tensor, "pipeline": self.pipeline, "context": self.context, "data": self.data}

    @property
    def metrics_rank(self) -> int:
        """The first rank of the last pipeline stage, which alone has the loss."""
        before = self.tensor * self.context * (1 if self.stages_inside_data else self.data)
        return before * (self.pipeline - 1)


def check_layout(settings: Settings, world_size: int | None) -> tuple[Layout, list[str]]:
    """The layout for `world_size` ranks, and what to tell about it.

    None: how many there will be is not known yet; what depends on it is not checked, and stands for the least.

    What does not fit goes to the settings' mistakes, with the numbers.
    """
    tensor, pipeline, context = settings[_TENSOR], settings[_PIPELINE], settings[_CONTEXT]
    least = tensor * pipeline * context
    world = least if world_size is None else world_size
    known = world_size is not None and not world % least
    layout = Layout(tensor, pipeline, context, world // least, bool(settings["use_tp_pp_dp_mapping"]))
    notes: list[str] = []
    settings.check(
        lambda s: _check_tensor(s, layout, world),
        _check_model,
        lambda s: _check_sequence(s, layout, world),
        lambda s: notes.extend(_check_stages(s, layout)),
        lambda s: notes.extend(_with_predictions(s)),
        lambda s: _check_batch(s, layout) if known else None,
        lambda s: _check_experts(s, layout) if known else None,
    )
    return layout, notes


def _check_tensor(settings: Settings, layout: Layout, world: int) -> None:
    """Refuse sizes that do not divide the ranks or the model, both at once."""
    unfit = [f"{name} {settings[name]}" for name in _unfit(settings, layout.tensor)]
    least = replace(layout, data=1).world_size
    ranks = ""
    if world % least:
        shown = f"tensor {layout.tensor} x pipeline {layout.pipeline} x context {layout.context} = {least}"
        ranks = f"{shown} does not divide {world} {'rank' if world == 1 else 'ranks'}"
    if not unfit and not ranks:
        return
    fix = _other_sizes(settings, layout, world)
    if not unfit:
        first = next((name for name in (_TENSOR, _PIPELINE, _CONTEXT) if name in settings), _TENSOR)
        raise settings.error(first, ranks, why="each group of that many ranks holds one copy of the model", fix=fix)
    why = [f"it does not fit {' and '.join(unfit[1:])} either" if unfit[1:] else "", ranks]
    what = f"{_TENSOR} {layout.tensor} does not divide {unfit[0]}"
    if unfit[0].startswith("num_query_groups"):
        what = f"{_TENSOR} {layout.tensor} and {unfit[0]} do not divide each other"
    beside = _unfit(settings, layout.tensor)
    raise settings.error(_TENSOR, what, why=", and ".join(filter(None, why)), fix=fix, beside=beside)


def _unfit(settings: Settings, tensor: int) -> list[str]:
    """Return the sizes of the model that so many tensor-parallel ranks cannot share."""
    found = [name for name in ("num_attention_heads", "ffn_hidden_size") if _size(settings, name) % tensor]
    groups = _groups(settings)
    return [*found, "num_query_groups"] if groups and groups % tensor and tensor % groups else found


def _groups(settings: Settings) -> int:
    return _size(settings, "num_query_groups") if settings["group_query_attention"] else 0


def _size(settings: Settings, name: str) -> int:
    """Return a size of the model; 0 where it is not known, or has been refused: the ranks are judged without it."""
    return 0 if settings.is_open(name) else settings[name] or 0


def _other_sizes(settings: Settings, layout: Layout, world: int) -> str:
    """Propose what the model, ranks, sequences, batch and experts allow at once."""
    product = f"make their product a divisor of {world}, or {OTHER_RANKS}"
    if layout.pipeline * layout.context > world == 1:
        sizes = {name: settings[name] for name in (_TENSOR, _PIPELINE, _CONTEXT)}
        return ones(sizes, fit=not _unfit(settings, layout.tensor))
    if layout.tensor == 1:
        return product
    most = math.gcd(_size(settings, "num_attention_heads"), _size(settings, "ffn_hidden_size")) or world
    possible = [replace(layout, tensor=size, data=1) for size in range(1, most + 1) if not _unfit(settings, size)]
    possible = narrow(possible, lambda one: _check_sequence(settings, one, one.world_size))
    made = [replace(one, data=world // one.world_size) for one in possible if not world % one.world_size]
    others = [one for one in possible if world % one.world_size]
    if not made:
        return f"set {_TENSOR} to {either(one.tensor for one in possible if not world % one.tensor)}, and {product}"
    if others and not any(passes(lambda x: _check_batch(settings, x), one) for one in made):
        return f"set {_TENSOR} to {either(one.tensor for one in possible)}, and {OTHER_RANKS}"
    made = narrow(made, lambda one: _check_batch(settings, one))
    made = narrow(made, lambda one: _check_experts(settings, one))
    for_others = f"; for {either(one.tensor for one in others)}, {OTHER_RANKS}" if others else ""
    return f"set {_TENSOR} to {either(one.tensor for one in made)}{for_others}"


def _check_model(settings: Settings) -> None:
    settings.check(
        lambda s: None if s["kv_channels"] else _divides(s, "num_attention_heads", "hidden_size"),
        lambda s: _divides(s, "num_query_groups", "num_attention_heads") if _groups(s) else None,
    )


def _divides(settings: Settings, divisor: str, name: str) -> None:
    value, by = settings[name], settings[divisor]
    if value and by and value % by:
        typed = name in settings and is_typed(settings.where(name))
        at = name if typed or divisor not in settings else divisor
        fix = f"take a multiple of {by}" if typed else f"let {divisor} be a divisor of {value}"
        raise settings.error(at, f"{divisor} {by} does not divide {name} {value}", fix=fix)


def _is_possible(settings: Settings, layout: Layout, world: int) -> bool:
    """Whether heads and ranks allow these sizes: otherwise no other length of sequences would help."""
    heads = settings["num_attention_heads"] or 0
    return not (world % (layout.tensor * layout.context) or heads % layout.tensor)


def _check_sequence(settings: Settings, layout: Layout, world: int) -> None:
    length, longest = settings["seq_length"], settings["max_position_embeddings"]
    if longest and length and length > longest:
        raise settings.error(
            "seq_length",
            f"seq_length {length} exceeds max_position_embeddings {longest}",
            fix="reduce the first, or increase the second",
        )
    of_tensor = layout.tensor if settings["sequence_parallel"] else 1
    pieces = of_tensor * (2 * layout.context if layout.context > 1 else 1)
    if length and length % pieces and _is_possible(settings, layout, world):
        parts = (
            f"sequence parallelism over {of_tensor} ranks" if of_tensor > 1 else "",
            f"context parallelism over {layout.context}, which takes two pieces each" if layout.context > 1 else "",
        )
        raise settings.error(
            "seq_length",
            f"seq_length {length} cannot be cut into {pieces} equal pieces",
            why=" and ".join(filter(None, parts)),
            fix=f"take a multiple of {pieces}",
            beside=(_CONTEXT, _TENSOR, "sequence_parallel"),
        )


def _with_predictions(settings: Settings) -> list[str]:
    """Where a layout of stages does not say it, MTP layers are where Megatron has them without a layout: at the end."""
    name, number = "pipeline_model_parallel_layout", settings["mtp_num_layers"]
    text = settings[name]
    if not number or not isinstance(text, str) or "m" in text or not text.endswith("L"):
        return []
    settings.set(name, f"{text[:-1]}{'m' * number}L")
    return [f"{name} ends with {'m' * number}L: Megatron wants the MTP layers in it"]


def _check_stages(settings: Settings, layout: Layout) -> list[str]:
    layers = settings["num_layers"]
    if not layers or any(settings[name] for name in _UNEVEN if settings.knows(name)):
        return []
    chunk = settings["num_layers_per_virtual_pipeline_stage"]
    chunks = settings["num_virtual_stages_per_pipeline_rank"]
    if layers % layout.pipeline:
        ends = None if chunk or chunks else _uneven_ends(layers, layout.pipeline)
        if not ends:
            raise settings.error(
                _PIPELINE,
                f"{_PIPELINE} {layout.pipeline} does not divide num_layers {layers}",
                fix="take a divisor, or say where the layers go with pipeline_model_parallel_layout",
            )
        for name, number in zip(_ENDS, ends, strict=True):
            settings.set(name, number)
        has = f"the first of {layout.pipeline} stages has {ends[0]}, the last {ends[1]}"
        return [f"{layers} layers are not divisible by the number of stages: {has}"]
    if (chunk or chunks) and layout.pipeline == 1:
        raise settings.error(
            "num_layers_per_virtual_pipeline_stage" if chunk else "num_virtual_stages_per_pipeline_rank",
            "virtual pipeline stages in a pipeline of one rank",
            fix=f"raise {_PIPELINE}, or remove it",
        )
    unit = layout.pipeline * (chunk or chunks or 1)
    if layers % unit:
        name = "num_layers_per_virtual_pipeline_stage" if chunk else "num_virtual_stages_per_pipeline_rank"
        raise settings.error(
            name, f"num_layers {layers} is not a multiple of {unit}", why=f"{name} x {layout.pipeline} pipeline ranks"
        )
    return []


def _uneven_ends(layers: int, stages: int) -> tuple[int, int] | None:
    """Return the numbers of layers of the first and the last stage with which all others have equally many, one more.

    The ends also hold the embedding and the output layer, so they get fewer.
    """
    inner = -(-layers // stages)
    rest = layers - inner * (stages - 2)
    first = rest // 2
    return (first, rest - first) if stages > 2 and 1 <= first <= rest - first <= inner else None


def _check_batch(settings: Settings, layout: Layout) -> None:
    micro, total = settings["micro_batch_size"], settings["global_batch_size"]
    if not micro or not total:
        return  # Megatron's default: one micro-batch for each data-parallel rank
    unit = micro * layout.data
    if total % unit:
        raise settings.error(
            "global_batch_size",
            f"global_batch_size {total} is not a multiple of {unit}",
            why=f"micro_batch_size {micro} x {layout.data} data-parallel ranks",
            fix=f"take a multiple of {unit}",
        )


def _check_experts(settings: Settings, layout: Layout) -> None:
    expert, experts = settings[_EXPERT], settings["num_experts"]
    if expert > 1 and not experts:
        raise settings.error(_EXPERT, f"{_EXPERT} {expert} for a model without experts", fix="remove it")
    for name in (_EXPERT, "moe_router_num_groups"):
        _divides(settings, name, "num_experts")
    if experts and settings["moe_router_topk"] > experts:
        raise settings.error(
            "moe_router_topk",
            f"moe_router_topk {settings['moe_router_topk']} exceeds num_experts {experts}",
            fix="reduce moe_router_topk, or increase num_experts",
        )
    tensor = settings["expert_tensor_parallel_size"] or layout.tensor
    unit = expert * tensor * layout.pipeline
    if layout.world_size % unit:
        raise settings.error(
            _EXPERT,
            f"{_EXPERT} {expert} x expert_tensor_parallel_size {tensor} x pipeline {layout.pipeline} = {unit}"
            f" does not divide {layout.world_size} ranks",
        )
    if experts and layout.tensor > 1 and not settings["sequence_parallel"]:
        raise settings.error(
            _TENSOR,
            f"{_TENSOR} {layout.tensor} for a model with experts, without sequence_parallel",
            why="Megatron would end at the first step: experts need sequence parallelism beside tensor parallelism",
            fix="set sequence_parallel: true",
        )
