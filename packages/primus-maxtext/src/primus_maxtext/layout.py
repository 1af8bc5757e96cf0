"""How devices share the work, checked before anything starts: MaxText would say it on every node, after the queue."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from primus_core.errors import ConfigError, Mistakes
from primus_core.plan.plan import Distributed
from primus_maxtext.settings import Settings
from primus_train.kit.degrees import either, passes

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
_TENSOR = ("tensor", "tensor_sequence", "autoregressive")
"""The axes that divide heads."""
_NOTHING: Mapping[str, int] = MappingProxyType({})
_HOW_MANY = "GPUS_PER_NODE, or more nodes; `config`: --gpus-per-node, --nodes"
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
    layout = _mesh(settings, place, gpu=gpu, explain=lambda: _other_sizes(settings, place, gpu=gpu))
    settings.check(
        lambda s: _check_tensor(s, layout, lambda: _other_sizes(s, place, gpu=gpu)),
        lambda s: _check_weights(s, layout),
        lambda s: _check_experts(s, layout),
        lambda s: _check_length(s, layout),
        lambda s: _check_stages(s, layout),
    )
    return layout


def _mesh(
    settings: Settings,
    place: Distributed,
    *,
    gpu: bool,
    chosen: Mapping[str, int] = _NOTHING,
    explain: Callable[[], str] = str,
) -> Layout:
    """Return the mesh, with the `chosen` sizes inside a node over the settings'; `explain` has the fix."""
    devices = place.nnodes * place.gpus_per_node
    inside, across = (place.gpus_per_node, place.nnodes) if gpu else (devices, 1)
    if gpu and settings["num_slices"] > 0:  # nodes that share one fabric
        inside, across = devices // settings["num_slices"], settings["num_slices"]
    parts = {
        "ici": _filled(
            settings, "ici", None if place.tentative else inside, explain, one_level=across == 1, chosen=chosen
        ),
        "dcn": _filled(settings, "dcn", across, explain, one_level=False) if across > 1 else _alone(settings, gpu=gpu),
    }
    sizes = {axis: parts["ici"][axis] * parts["dcn"][axis] for axis in _AXES}
    return Layout(sizes, math.prod(sizes.values()))


def _filled(
    settings: Settings,
    level: str,
    count: int | None,
    explain: Callable[[], str],
    *,
    one_level: bool,
    chosen: Mapping[str, int] = _NOTHING,
) -> dict[str, int]:
    """The axes of one level, whose product must be `count` (None: whatever they make); one may be -1, for the rest."""
    sizes = {axis: settings[f"{level}_{axis}_parallelism"] for axis in _AXES} | dict(chosen)
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
        fix = explain() if level == "ici" and any(sizes[axis] > 1 for axis in _TENSOR) else ""
        raise _does_not_fit(settings, names, sizes, whole, "devices" if one_level else _LEVELS[level], fix)
    return {axis: whole // fixed if size == -1 else size for axis, size in sizes.items()}


def _does_not_fit(
    settings: Settings, names: Mapping[str, str], sizes: Mapping[str, int], whole: int, what: str, fix: str
) -> ConfigError:
    chosen = {names[axis]: size for axis, size in sizes.items() if size not in (1, -1)}
    product = " x ".join(f"{name}={size}" for name, size in chosen.items()) or "1"
    name = next(iter(chosen), names["fsdp"])
    return settings.error(
        name,
        f"the mesh does not fit: {product}, but there are {whole} {what}",
        why=f"the product of the axes must be {whole}; one of them may be -1, for the rest",
        fix=fix or f"correct '{name}', or start as many as it says ({_HOW_MANY})",
    )


def _alone(settings: Settings, *, gpu: bool) -> dict[str, int]:
    """The axes between nodes, where there is one node, or where nodes make no difference."""
    for axis in _AXES:
        name = f"dcn_{axis}_parallelism"
        if settings[name] not in (1, -1):
            why = "there is one node" if gpu else "on CPUs, the devices of all nodes are one slice (`ici`)"
            raise settings.error(name, f"'{name}' is {settings[name]}", why=why, fix="remove it, or set it to -1")
    return dict.fromkeys(_AXES, 1)


def _check_tensor(settings: Settings, layout: Layout, explain: Callable[[], str]) -> None:
    """Refuse tensor parallelism that does not divide heads and weights, all of them at once."""
    tensor = math.prod(layout.sizes[axis] for axis in _TENSOR)
    unfit = _unfit(settings, layout)
    if unfit:
        what = f"tensor parallelism is {tensor}, and " + ", ".join(f"'{name}' is {settings[name]}" for name in unfit)
        why = "each device needs whole heads, and an equal part of a weight"
        raise settings.error(_tensor_setting(settings), what, why=why, fix=explain())


def _tensor_setting(settings: Settings) -> str:
    names = [f"{level}_{axis}_parallelism" for level in _LEVELS for axis in _TENSOR]
    return next((name for name in names if settings[name] not in (0, 1)), names[0])


def _unfit(settings: Settings, layout: Layout) -> list[str]:
    """Return the sizes of the model that tensor parallelism does not divide."""
    tensor = math.prod(layout.sizes[axis] for axis in _TENSOR)
    return [name for name in _shared(settings) if _size(settings, name) % tensor]


def _shared(settings: Settings) -> tuple[str, ...]:
    heads = () if settings["attention_type"] == "mla" else ("base_num_query_heads", "base_num_kv_heads")
    return (*heads, *(() if _has_own_rules(settings) else ("base_mlp_dim", "vocab_size")))


def _size(settings: Settings, name: str) -> int:
    """Return a size of the model; 0 where it has been refused: the devices are judged without it."""
    return 0 if settings.is_open(name) else settings[name]


def _has_own_rules(settings: Settings) -> bool:
    return any(rule in settings for rule in _OWN_RULES)


def _other_sizes(settings: Settings, place: Distributed, *, gpu: bool) -> str:
    """Propose what heads, weights, devices and the length of sequences allow at once."""
    name, others = _tensor_setting(settings), f"start another number of devices ({_HOW_MANY})"
    count = place.nnodes * place.gpus_per_node
    most = math.gcd(*(_size(settings, one) for one in _shared(settings))) or count
    product = f"make the product of {', '.join(_TENSOR)} a divisor of {most}"
    if name.startswith("dcn"):
        return product
    sizes = [size for size in range(1, most + 1) if not most % size]
    made = {size: layout for size in sizes if (layout := _tried(settings, place, {name: size}, gpu=gpu))}
    fit = [size for size, layout in made.items() if not _unfit(settings, layout)]
    if made and not fit:
        return product
    more = [size for size in sizes if size not in made]
    if not made:
        devices = "let the product of all axes be the number of devices"
        return f"set {name} to {either(size for size in more if not count % size)}, and {devices}, or {others}"
    if more and not any(passes(partial(_check_weights, settings), made[size]) for size in fit):
        return f"set {name} to {either(sizes)}, and {others}"
    for check in (_check_weights, _check_experts, _check_length, _check_stages):
        fit = [size for size in fit if passes(partial(check, settings), made[size])] or fit
    return f"set {name} to {either(fit)}" + (f"; for {either(more)}, {others}" if more else "")


def _tried(settings: Settings, place: Distributed, named: Mapping[str, int], *, gpu: bool) -> Layout | None:
    chosen = {name.removeprefix("ici_").removesuffix("_parallelism"): size for name, size in named.items()}
    with Mistakes():
        return _mesh(settings, place, gpu=gpu, chosen=chosen)
    return None


def _check_weights(settings: Settings, layout: Layout) -> None:
    """JAX deals out equal parts alone."""
    tensor = math.prod(layout.sizes[axis] for axis in _TENSOR)
    for name, axes in () if _has_own_rules(settings) else _DIVIDED.items():
        parts = {axis: layout.sizes[axis] for axis in axes if layout.sizes[axis] > 1}
        is_told = name != "base_emb_dim" and settings[name] % tensor  # by `_check_tensor`
        if settings[name] % math.prod(parts.values()) and not is_told:
            others, most = f"start another number of devices ({_HOW_MANY})", math.gcd(settings[name], layout.devices)
            raise settings.error(
                f"ici_{next(iter(parts))}_parallelism",
                f"'{name}' is {settings[name]}, divided by " + " x ".join(f"{a} {size}" for a, size in parts.items()),
                why="each device needs an equal part of a weight",
                fix=f"make their product a divisor of {most}, or {others}" if most > 1 else others,
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
