"""How ranks share the work, checked before anything starts: TorchTitan would say it on every rank, after the queue."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from primus_core.errors import suggestion
from primus_torchtitan.settings import Settings
from primus_train.kit.degrees import OTHER_RANKS, either, narrow, ones, passes

__all__ = ["Layout", "check_layout", "metrics_rank"]

MASK_BLOCK = 128
"""FlexAttention's block: context parallelism gives a rank whole blocks only."""
_DEGREES = {
    "replicate": "parallelism.data_parallel_replicate_degree",
    "shard": "parallelism.data_parallel_shard_degree",
    "context": "parallelism.context_parallel_degree",
    "tensor": "parallelism.tensor_parallel_degree",
    "pipeline": "parallelism.pipeline_parallel_degree",
}
_HEADS = ("n_heads", "n_kv_heads")


@dataclass(frozen=True, slots=True)
class Layout:
    """Degrees of parallelism; their product is the number of ranks."""

    replicate: int
    shard: int
    context: int
    tensor: int
    pipeline: int
    expert: int = 1

    @classmethod
    def of(cls, settings: Settings, shard: int, tensor: int | None = None) -> Self:
        """Return the degrees of the settings, with these."""
        degree = {name: settings[setting] for name, setting in _DEGREES.items()}
        changed = {"shard": max(shard, 1), "tensor": tensor or degree["tensor"]}
        return cls(**{**degree, **changed}, expert=settings["parallelism.expert_parallel_degree"])

    @property
    def data(self) -> int:
        """Ranks that read different documents."""
        return self.replicate * self.shard

    @property
    def world_size(self) -> int:
        """All ranks."""
        return self.data * self.context * self.tensor * self.pipeline


def check_layout(
    settings: Settings, world_size: int | None, facts: Mapping[str, Any], schedules: Mapping[str, str]
) -> Layout:
    """The layout for `world_size` ranks and a model of which `facts` are known.

    None: how many there will be is not known yet; what depends on it is not checked, and stands for the least.

    What does not fit goes to the settings' mistakes, with the numbers.
    """
    made = _made(settings, _least(settings) if world_size is None else world_size)
    known = made is not None and world_size is not None
    layout = made or Layout.of(settings, settings[_DEGREES["shard"]])
    settings.check(
        lambda s: _check_degrees(s, layout, facts, world_size),
        lambda s: _check_sequence(s, layout, facts, world_size),
        lambda s: _check_batch(s, layout) if known else None,
        lambda s: _check_experts(s, layout, facts) if known else None,
        lambda s: _check_pipeline(s, layout, facts, schedules),
    )
    return layout


def metrics_rank(layout: Layout, schedule: str) -> int:
    """The rank whose step metrics count: the first of the last pipeline stage, which alone has the loss."""
    if layout.pipeline == 1 or schedule == "ZBVZeroBubble":
        return 0  # in a V the first rank holds the last stage too
    return layout.world_size // layout.pipeline * (layout.pipeline - 1)


def _least(settings: Settings) -> int:
    """The fewest ranks that the degrees allow."""
    return math.prod(max(settings[setting], 1) for setting in _DEGREES.values())


def _made(settings: Settings, world_size: int, tensor: int | None = None) -> Layout | None:
    """Return the layout that makes these ranks, with another tensor parallelism than the settings'; None: none does."""
    layout = Layout.of(settings, 1, tensor)
    shard = settings[_DEGREES["shard"]]
    if shard == -1:
        shard = world_size // layout.world_size
    layout = replace(layout, shard=shard)
    return layout if shard >= 1 and layout.world_size == world_size else None


def _check_degrees(settings: Settings, layout: Layout, facts: Mapping[str, Any], world_size: int | None) -> None:
    """Refuse degrees that do not make the ranks or do not divide the heads, both at once."""
    heads = [f"{name} {facts[name]}" for name in _HEADS if facts.get(name) and facts[name] % layout.tensor]
    ranks = "" if world_size is None or _made(settings, world_size) else _unmade(settings, world_size)
    if not heads and not ranks:
        return
    if not heads:
        first = next((name for name in _DEGREES.values() if name in settings), _DEGREES["shard"])
        others = Layout.of(settings, 1).world_size
        why = f"degrees other than shard take {others}; shard -1 means the rest"
        raise settings.error(first, ranks, why=why, fix=_other_degrees(settings, layout, facts, world_size))
    raise settings.error(
        _DEGREES["tensor"],
        f"tensor parallelism {layout.tensor} does not divide {heads[0]}",
        why=ranks,
        fix=_other_degrees(settings, layout, facts, world_size),
    )


def _unmade(settings: Settings, world_size: int) -> str:
    degree = {name: settings[setting] for name, setting in _DEGREES.items()}
    shown = " x ".join(f"{name} {value}" for name, value in degree.items() if value != 1 or name == "shard")
    return f"the parallelism degrees ({shown}) do not make {world_size} {'rank' if world_size == 1 else 'ranks'}"


def _other_degrees(settings: Settings, layout: Layout, facts: Mapping[str, Any], world_size: int | None) -> str:
    """Propose what heads, ranks, sequences, batch and experts allow at once."""
    product = f"make their product {world_size}, or {OTHER_RANKS}"
    if world_size == 1 and not _made(settings, 1, 1):
        return ones({name: settings[name] for name in _DEGREES.values()}, fit=_is_possible(layout, facts, None))
    if layout.tensor == 1:
        return product
    shared = math.gcd(*(facts[name] for name in _HEADS if facts.get(name))) or world_size or 1
    possible = [replace(layout, tensor=degree) for degree in range(1, shared + 1) if shared % degree == 0]
    possible = narrow(possible, lambda one: _check_sequence(settings, one, facts, None))
    if world_size is None:
        return f"set {_DEGREES['tensor']} to {either(one.tensor for one in possible)}"
    made = [one for one in (_made(settings, world_size, one.tensor) for one in possible) if one]
    others = [one for one in possible if not _made(settings, world_size, one.tensor)]
    if not made:
        fit = either(one.tensor for one in possible if not world_size % one.tensor)
        return f"set {_DEGREES['tensor']} to {fit}, and {product}"
    if others and not any(passes(lambda x: _check_batch(settings, x), one) for one in made):
        return f"set {_DEGREES['tensor']} to {either(one.tensor for one in possible)}, and {OTHER_RANKS}"
    made = narrow(made, lambda one: _check_batch(settings, one))
    made = narrow(made, lambda one: _check_experts(settings, one, facts))
    for_others = f"; for {either(one.tensor for one in others)}, {OTHER_RANKS}" if others else ""
    return f"set {_DEGREES['tensor']} to {either(one.tensor for one in made)}{for_others}"


def _is_possible(layout: Layout, facts: Mapping[str, Any], world_size: int | None) -> bool:
    """Whether heads and ranks allow these degrees: otherwise no other length of sequences would help."""
    heads = [facts[name] for name in _HEADS if facts.get(name)]
    ranks = 0 if world_size is None else world_size
    return not (ranks % (layout.tensor * layout.context) or any(number % layout.tensor for number in heads))


def _check_sequence(settings: Settings, layout: Layout, facts: Mapping[str, Any], world_size: int | None) -> None:
    length, longest = settings["training.seq_len"], facts.get("max_seq_len")
    if longest and length > longest:
        raise settings.error(
            "training.seq_len",
            f"sequences of {length} tokens exceed the model's {longest}",
            fix="reduce training.seq_len, or increase model.max_seq_len",
        )
    if not _is_possible(layout, facts, world_size):
        return
    tensor = layout.tensor if settings["parallelism.enable_sequence_parallel"] else 1
    pieces = tensor * (2 * layout.context if layout.context > 1 else 1)
    if length % pieces:
        raise settings.error(
            "training.seq_len",
            f"training.seq_len {length} cannot be cut into {pieces} equal pieces",
            why=f"tensor parallelism {layout.tensor}, context parallelism {layout.context}",
            fix=f"take a multiple of {pieces}, or other degrees of parallelism",
        )
    if layout.context > 1 and length % (layout.context * MASK_BLOCK):
        raise settings.error(
            "training.seq_len",
            f"training.seq_len {length} cannot be spread over {layout.context} context-parallel ranks",
            why=f"attention masks come in blocks of {MASK_BLOCK} tokens",
            fix=f"take a multiple of {layout.context * MASK_BLOCK}",
        )
    _check_chunks(settings, length // (layout.context * tensor))


def _check_chunks(settings: Settings, length: int) -> None:
    chunks = settings["loss.num_chunks"]
    if settings["loss.kind"] != "chunked_cross_entropy" or length % chunks == 0:
        return
    raise settings.error(
        "loss.num_chunks",
        f"{length} tokens per rank cannot be cut into {chunks} chunks for the loss",
        why="tensor and context parallelism divide training.seq_len first",
        fix=f"take a loss.num_chunks that divides {length}, or set loss.kind: cross_entropy",
    )


def _check_batch(settings: Settings, layout: Layout) -> None:
    total, local = settings["training.global_batch_size"], settings["training.local_batch_size"]
    unit = local * layout.data
    if total >= 0 and (total == 0 or total % unit):
        raise settings.error(
            "training.global_batch_size",
            f"training.global_batch_size {total} is not a multiple of {unit}",
            why=f"local_batch_size {local} x {layout.data} data-parallel ranks",
            fix=f"take a multiple of {unit}, or -1 for {unit}",
        )


def _check_experts(settings: Settings, layout: Layout, facts: Mapping[str, Any]) -> None:
    name, inner = "parallelism.expert_parallel_degree", layout.shard * layout.context * layout.tensor
    if layout.expert == 1:
        return
    experts = facts.get("experts")  # of a module of one's own, nobody knows
    if experts == 0:
        raise settings.error(name, f"expert parallelism {layout.expert} for a model without experts", fix="remove it")
    if inner % layout.expert:
        raise settings.error(
            name,
            f"expert parallelism {layout.expert} does not divide {inner}",
            why="experts are spread over shard x context x tensor ranks",
            fix=f"take a divisor of {math.gcd(inner, experts or inner)}",
        )
    if experts and experts % layout.expert:
        what = f"expert parallelism {layout.expert} does not divide {experts} experts"
        raise settings.error(name, what, fix=f"take a divisor of {math.gcd(inner, experts)}")


def _check_pipeline(settings: Settings, layout: Layout, facts: Mapping[str, Any], schedules: Mapping[str, str]) -> None:
    schedule = settings["parallelism.pipeline_parallel_schedule"]
    known = {name.lower(): name for name in schedules}
    if schedule.lower() not in known:
        raise settings.error(
            "parallelism.pipeline_parallel_schedule",
            f"there is no pipeline schedule '{schedule}'",
            why=f"known: {', '.join(schedules)}",
            fix=suggestion(schedule, schedules) or "use one of them",
        )
    if layout.pipeline == 1:
        return
    if facts.get("weight_tying"):
        raise settings.error(
            _DEGREES["pipeline"],
            "a model with tied weights cannot be split into pipeline stages",
            fix="set parallelism.pipeline_parallel_degree: 1",
        )
    _check_microbatches(settings, layout.pipeline, known[schedule.lower()])
    if facts.get("n_layers") and settings["parallelism.module_fqns_per_model_part"] is None:
        _check_stages(settings, layout.pipeline, facts["n_layers"], schedules[known[schedule.lower()]])


def _check_microbatches(settings: Settings, ranks: int, schedule: str) -> None:
    """As the constructors of `torch.distributed.pipelining.schedules` do."""
    local, micro = settings["training.local_batch_size"], settings["parallelism.pipeline_parallel_microbatch_size"]
    if local % micro:
        raise settings.error(
            "parallelism.pipeline_parallel_microbatch_size",
            f"training.local_batch_size {local} is not a multiple of the microbatch size {micro}",
        )
    count, stages = local // micro, {"1F1B": ranks, "DualPipeV": 2 * ranks}.get(schedule, 1)
    why = f"training.local_batch_size {local}, parallelism.pipeline_parallel_microbatch_size {micro}"
    if count < stages:
        what = f"schedule {schedule} needs {stages} microbatches, one for each stage, and there are {count}"
        raise settings.error(
            "training.local_batch_size", what, why=why, fix=f"training.local_batch_size={stages * micro}"
        )
    rounds = max(1, count // ranks)
    if schedule.startswith("Interleaved") and count % rounds:
        what = f"schedule {schedule} makes {rounds} rounds, and {count} microbatches do not divide into them"
        fix = f"training.local_batch_size={rounds * ranks * micro}"
        raise settings.error("training.local_batch_size", what, why=why, fix=fix)


def _check_stages(settings: Settings, pipeline: int, layers: int, kind: str) -> None:
    """TorchTitan counts the embedding and the output as layers, one each unless told otherwise."""
    ends = ("first", "last")
    weights = sum(settings[f"parallelism.pipeline_parallel_{end}_stage_less_layers"] for end in ends)
    per_stage = settings["parallelism.pipeline_parallel_layers_per_stage"]
    per_rank = 1 if kind == "single" else 2
    stages = math.ceil((layers + weights) / per_stage) if per_stage else pipeline * per_rank
    at = "parallelism.pipeline_parallel_layers_per_stage" if per_stage else _DEGREES["pipeline"]
    fits = stages % pipeline == 0 and (stages == pipeline if kind == "single" else stages >= 2 * pipeline)
    if not fits:
        raise settings.error(
            at,
            f"{layers} layers at {per_stage} per stage make {stages} stages, which do not fit "
            f"{pipeline} pipeline ranks with {'one stage' if kind == 'single' else 'two or more'} each",
        )
    if layers + weights < stages:
        raise settings.error(
            at,
            f"{layers} layers are too few for {stages} pipeline stages",
            fix="use fewer pipeline ranks or a deeper model",
        )
