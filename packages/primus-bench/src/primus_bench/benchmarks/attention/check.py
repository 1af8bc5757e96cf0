"""Whether output and gradients are right: compared with attention written out, computed in more digits."""

from __future__ import annotations

import torch

from primus_bench.benchmarks.attention.backends import Attend, Operands, mask
from primus_bench.benchmarks.attention.problem import Problem

__all__ = ["wrong"]

_AFFORDABLE = {"cpu": 2**26, "cuda": 2**32}
"""Pairs of query and key that the reference may look at. Beyond it, evenly spaced groups of heads are checked."""
_MOST = 3.0
"""How many times as far from the reference as attention written out in the same type (flash-attention's own tests)."""
_NAMES = ("output", "dQ", "dK", "dV")

Found = tuple[torch.Tensor, ...]


def wrong(attend: Attend, operands: Operands, problem: Problem) -> str:
    """Run it forward and backward once, and say what is wrong; empty: nothing."""
    output = attend(operands)
    found: Found = (output.detach(), *torch.autograd.grad(output, operands.inputs, operands.upstream))
    allowed = mask(problem, operands.q.device.type)
    share = problem.heads // problem.kv_heads
    for batch, group in _groups(problem, operands.q.device.type):
        heads = slice(group * share, (group + 1) * share)
        parts = [x[batch, heads] for x in (operands.q.detach(), operands.upstream)]
        keys = [x.detach()[batch, group] for x in (operands.k, operands.v)]
        own = (found[0][batch, heads], found[1][batch, heads], found[2][batch, group], found[3][batch, group])
        if text := _difference(own, parts, keys, allowed):
            return f"sequence {batch}, heads {heads.start} to {heads.stop - 1}: {text}"
    return ""


def _groups(problem: Problem, device: str) -> list[tuple[int, int]]:
    """Sequence and head of keys: as many as are affordable, one at least."""
    every = [(batch, group) for batch in range(problem.batch) for group in range(problem.kv_heads)]
    cost = problem.seq**2 * problem.heads // problem.kv_heads
    count = max(1, _AFFORDABLE[device] // cost)
    return every[:: -(-len(every) // count)]


def _difference(found: Found, queries: list[torch.Tensor], keys: list[torch.Tensor],
                allowed: torch.Tensor | None) -> str:  # fmt: skip
    """Of one group of heads."""
    own = found[0].dtype
    wide = torch.float64 if own == torch.float32 else torch.float32
    right, plain = (_written_out(queries, keys, allowed, dtype) for dtype in (wide, own))
    for name, one, reference, rough in zip(_NAMES, found, right, plain, strict=True):
        error, usual = ((x.to(wide) - reference).abs().max() for x in (one, rough))
        limit = _MOST * usual + 4 * torch.finfo(own).eps * reference.abs().max()
        if not bool(error <= limit):  # NaN, too
            return f"{name} is {error.item():.3g} off; rounding explains {limit.item():.3g}"
    return ""


def _written_out(queries: list[torch.Tensor], keys: list[torch.Tensor], allowed: torch.Tensor | None,
                 dtype: torch.dtype) -> Found:  # fmt: skip
    """Output, dQ, dK and dV, head by head: all at once would need memory for all pairs."""
    q, upstream = (x.to(dtype) for x in queries)
    k, v = (x.to(dtype).requires_grad_() for x in keys)
    outputs, d_q = torch.empty_like(upstream), torch.empty_like(q)
    d_k, d_v = torch.zeros_like(k), torch.zeros_like(v)
    for head in range(len(q)):
        one = q[head].clone().requires_grad_()
        scores = one @ k.T / q.shape[-1] ** 0.5
        scores = scores if allowed is None else scores.masked_fill(~allowed, float("-inf"))
        outputs[head] = output = torch.softmax(scores, -1) @ v
        grads = torch.autograd.grad(output, (one, k, v), upstream[head])
        d_q[head] = grads[0]
        d_k += grads[1]
        d_v += grads[2]
    return outputs.detach(), d_q, d_k, d_v
