"""How devices share the work, checked before anything starts: MaxText would say it on every node, after the queue."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from primus_core.errors import ConfigError
from primus_core.plan.plan import Distributed
from primus_maxtext.settings import Settings

__all__ = ["UNKNOWN", "Layout", "check_layout"]

_AXES = (
    "diloco", "data", "pipeline", "fsdp", "fsdp_transpose", "sequence", "context", "context_usp_ulysses",
    "context_autoregressive", "tensor", "tensor_sequence", "expert", "autoregressive",
)  # fmt: skip
_LEVELS = {"ici": "devices of a node", "dcn": "nodes"}
_BATCH = ("data", "fsdp", "fsdp_transpose", "expert")
"""The axes over which sequences are dealt out."""
_DIVIDED = {
    "base_emb_dim": ("fsdp", "fsdp_transpose", "context", "context_usp_ulysses", "expert"),
    "base_mlp_dim": ("fsdp_transpose", "tensor", "tensor_sequence", "autoregressive"),
    "vocab_size": ("tensor", "tensor_sequence", "autoregressive"),
}
"""The axes that divide the weights of these sizes, by MaxText's own rules."""
_OWN_RULES = ("logical_axis_rules", "custom_mesh_and_rule", "global_parameter_scale")


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes of the mesh's axes, over all nodes; their product is the number of devices."""

    sizes: Mapping[str, int]
    devices: int

    @property
    def data(self) -> int:
        """Devices that read different sequences."""
        return math.prod(self.sizes[axis] for axis in _BATCH)

    def shown(self) -> dict[str, int]:
        """Those that are more than one."""
        return {axis: size for axis, size in self.sizes.items() if size > 1}


UNKNOWN = Layout(dict.fromkeys(_AXES, 1), 1)
"""What stands for a layout that has been refused, so that the rest can be checked."""


def check_layout(settings: Settings, place: Distributed, *, gpu: bool) -> Layout:
    """The layout for the nodes and devices of `place`; where they are not known yet, for the fewest that will do.

    GPUs of a node are one slice of MaxText's, and nodes are joined by the `dcn` axes. CPUs are all in one slice.

    Raises:
        ConfigError: the numbers do not fit, with the numbers.
    """
    devices = place.nnodes * place.gpus_per_node
    inside, across = (place.gpus_per_node, place.nnodes) if gpu else (devices, 1)
    if gpu and settings["num_slices"] > 0:  # nodes that share one fabric
        inside, across = devices // settings["num_slices"], settings["num_slices"]
    parts = {
        "ici": _filled(settings, "ici", None if place.tentative else inside, one_level=across == 1),
        "dcn": _filled(settings, "dcn", across, one_level=False) if across > 1 else _alone(settings, gpu=gpu),
    }
    sizes = {axis: parts["ici"][axis] * parts["dcn"][axis] for axis in _AXES}
    layout = Layout(sizes, math.prod(sizes.values()))
    settings.check(
        lambda s: _check_heads(s, layout),
        lambda s: _check_weights(s, layout),
        lambda s: _check_experts(s, layout),
        lambda s: _check_length(s, layout),
        lambda s: _check_stages(s, layout),
    )
    return layout


def _filled(settings: Settings, level: str, count: int | None, *, one_level: bool) -> dict[str, int]:
    """The axes of one level, whose product must be `count` (None: whatever they make); one may be -1, for the rest."""
    sizes = {axis: settings[f"{level}_{axis}_parallelism"] for axis in _AXES}
    names = {axis: f"{level}_{axis}_parallelism" for axis in _AXES}
    for axis, size in sizes.items():
        if size == 0 or size < -1:
            fix = "set a number of devices, or -1: the rest"
            raise settings.error(names[axis], f"'{names[axis]}' is {size}", fix=fix)
    open_axes = [axis for axis, size in sizes.items() if size == -1]
    if len(open_axes) > 1:
        both = " and ".join(f"'{names[axis]}'" for axis in open_axes)
        given = next((names[axis] for axis in open_axes if names[axis] in settings), names[open_axes[0]])
        fix = f"set one of them: {names[open_axes[0]]}=1"
        raise settings.error(given, f"{both} are -1", why="only one axis of a mesh can be -1", fix=fix)
    fixed = math.prod(size for size in sizes.values() if size != -1)
    whole = fixed if count is None else count
    if whole % fixed or (not open_axes and whole != fixed):
        raise _does_not_fit(settings, names, sizes, whole, "devices" if one_level else _LEVELS[level])
    return {axis: whole // fixed if size == -1 else size for axis, size in sizes.items()}


def _does_not_fit(
    settings: Settings, names: Mapping[str, str], sizes: Mapping[str, int], whole: int, what: str
) -> ConfigError:
    chosen = {names[axis]: size for axis, size in sizes.items() if size not in (1, -1)}
    product = " x ".join(f"{name}={size}" for name, size in chosen.items()) or "1"
    name = next(iter(chosen), names["fsdp"])
    return settings.error(
        name,
        f"the mesh does not fit: {product}, but there are {whole} {what}",
        why=f"the product of the axes must be {whole}; one of them may be -1, for the rest",
        fix=f"correct '{name}', or start as many as it says (GPUS_PER_NODE; NNODES, Slurm's -N; `config`:"
        " --gpus-per-node, --nodes)",
    )


def _alone(settings: Settings, *, gpu: bool) -> dict[str, int]:
    """The axes between nodes, where there is one node, or where nodes make no difference."""
    for axis in _AXES:
        name = f"dcn_{axis}_parallelism"
        if settings[name] not in (1, -1):
            why = "there is one node" if gpu else "on CPUs, the devices of all nodes are one slice (`ici`)"
            raise settings.error(name, f"'{name}' is {settings[name]}", why=why, fix="remove it, or set it to -1")
    return dict.fromkeys(_AXES, 1)


def _check_heads(settings: Settings, layout: Layout) -> None:
    settings.check(
        *(lambda s, n=name: _check_whole(s, layout, n) for name in ("base_num_query_heads", "base_num_kv_heads"))
    )


def _check_whole(settings: Settings, layout: Layout, name: str) -> None:
    tensor = layout.sizes["tensor"] * layout.sizes["tensor_sequence"] * layout.sizes["autoregressive"]
    heads = settings[name]
    if tensor > 1 and heads % tensor and settings["attention_type"] != "mla":
        raise settings.error(
            "ici_tensor_parallelism",
            f"tensor parallelism is {tensor}, and '{name}' is {heads}",
            why="each device needs whole heads",
            fix=f"take a divisor of {heads}",
        )


def _check_weights(settings: Settings, layout: Layout) -> None:
    """JAX deals out equal parts alone."""
    for name, axes in () if any(rule in settings for rule in _OWN_RULES) else _DIVIDED.items():
        parts = {axis: layout.sizes[axis] for axis in axes if layout.sizes[axis] > 1}
        if settings[name] % math.prod(parts.values()):
            raise settings.error(
                f"ici_{next(iter(parts))}_parallelism",
                f"'{name}' is {settings[name]}, divided by " + " x ".join(f"{a} {size}" for a, size in parts.items()),
                why="each device needs an equal part of a weight",
                fix=f"take a divisor of {settings[name]}",
            )


def _check_experts(settings: Settings, layout: Layout) -> None:
    experts, expert = settings["num_experts"], layout.sizes["expert"]
    if expert > 1 and experts % expert:
        what = f"expert parallelism is {expert}, and 'num_experts' is {experts}"
        fix = f"let num_experts be a multiple of {expert}, or lower the expert parallelism"
        raise settings.error("ici_expert_parallelism", what, fix=fix, beside=["num_experts"])


def _check_length(settings: Settings, layout: Layout) -> None:
    length, context = settings["max_target_length"], layout.sizes["context"]
    if length % max(context, 1):
        what = f"context parallelism is {context}, and 'max_target_length' is {length}"
        raise settings.error("ici_context_parallelism", what, fix="take a divisor of the length")


def _check_stages(settings: Settings, layout: Layout) -> None:
    layers, stages = settings["base_num_decoder_layers"], layout.sizes["pipeline"]
    if stages > 1 and settings["pipeline_parallel_layers"] == -1:
        unit = stages * settings["num_layers_per_pipeline_stage"]
        if layers % unit:
            what = f"pipeline parallelism is {stages}, and 'base_num_decoder_layers' is {layers}"
            raise settings.error("ici_pipeline_parallelism", what, why=f"layers must be a multiple of {unit}")
