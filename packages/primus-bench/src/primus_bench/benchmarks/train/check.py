"""Whether a layer's output and gradients are right: compared with the layer written out, for its first tokens.

A token sees those before it only. So the output of the first tokens, and all gradients where the output of no other
token counts, are those of a short sequence: the kernels run at their real size, and the reference is cheap.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from primus_bench.benchmarks.train import reference
from primus_bench.benchmarks.train.layer import Forward, Layer

__all__ = ["not_finite", "wrong"]

_MOST = 3.0
"""How many times as far from the reference as the layer written out in the same type."""

Named = dict[str, torch.Tensor]


def wrong(forward: Forward, layer: Layer) -> str:
    """Run it forward and backward, and say what is wrong; empty: nothing."""
    output = forward(layer)
    if text := not_finite(layer, (output, *_gradients(output, layer, layer.upstream))):
        return text
    first = torch.zeros_like(layer.upstream)
    first[0, : layer.problem.compared] = layer.upstream[0, : layer.problem.compared]
    grads = _gradients(output, layer, first)
    found = {"output": output[0, : layer.problem.compared].detach(), **dict(zip(_names(layer), grads, strict=True))}
    own = layer.x.dtype
    wide = torch.float64 if own == torch.float32 else torch.float32
    return _difference(_sliced(found, layer), _written_out(layer, own), _written_out(layer, wide)) or _beyond(
        found, layer
    )


def _gradients(output: torch.Tensor, layer: Layer, upstream: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Zeros for a weight that has no share in the output, which is wrong, too."""
    return torch.autograd.grad(output, layer.inputs, upstream, retain_graph=True, materialize_grads=True)  # type: ignore[no-any-return]


def not_finite(layer: Layer, found: Iterable[torch.Tensor]) -> str:
    """Which of the output and all gradients is not; empty: none."""
    for name, one in zip(("output", *_names(layer)), found, strict=True):
        if not bool(one.isfinite().all()):
            return f"{name} is not finite"
    return ""


def _names(layer: Layer) -> list[str]:
    return [f"gradient of {name}" for name in ("the input", *layer.weights)]


def _experts(layer: Layer) -> list[int]:
    """Those that the first tokens choose."""
    return sorted(set(layer.chosen[: layer.problem.compared].flatten().tolist()))


def _sliced(found: Named, layer: Layer) -> Named:
    """The part of each that the first tokens have a share in."""
    kept = {
        name: one[_experts(layer)] if name.startswith("gradient of experts-") else one for name, one in found.items()
    }
    return kept | {"gradient of the input": found["gradient of the input"][0, : layer.problem.compared]}


def _beyond(found: Named, layer: Layer) -> str:
    """What other tokens and experts have a share in: nothing."""
    rest = found["gradient of the input"].clone()
    rest[0, : layer.problem.compared] = 0
    if bool(rest.any()):
        return "gradient of the input: a token has an influence on tokens before it"
    idle = [number for number in range(_count(layer)) if number not in _experts(layer)]
    touched = [name for name, one in found.items() if name.startswith("gradient of experts-") and bool(one[idle].any())]
    return f"{touched[0]}: an expert that no token chose has one" if touched else ""


def _count(layer: Layer) -> int:
    return layer.problem.facts.moe.num_experts if layer.problem.facts.moe else 0


def _written_out(layer: Layer, dtype: torch.dtype) -> Named:
    x = layer.x.detach()[0, : layer.problem.compared].to(dtype).requires_grad_()
    weights = {name: one.detach() for name, one in layer.weights.items()}
    own = {name: (one[_experts(layer)] if name.startswith("experts-") else one) for name, one in weights.items()}
    w = {name: one.to(dtype, copy=True).requires_grad_() for name, one in own.items()}
    output = reference.output(x, w, layer.problem.facts, layer.chosen[: layer.problem.compared].tolist())
    grads = torch.autograd.grad(output, (x, *w.values()), layer.upstream[0, : layer.problem.compared].to(dtype))
    return {"output": output.detach(), **dict(zip(_names(layer), grads, strict=True))}


def _difference(found: Named, rough: Named, right: Named) -> str:
    for name, exact in right.items():
        eps = torch.finfo(found[name].dtype).eps
        scale = exact.norm()
        error, usual = ((one[name].to(exact.dtype) - exact).norm() for one in (found, rough))
        limit = _MOST * usual + 4 * eps * scale
        if not bool(error <= limit):  # NaN, too
            return (
                f"{name} is {(error / scale).item():.3g} off (relative); rounding explains {(limit / scale).item():.3g}"
            )
    return ""
