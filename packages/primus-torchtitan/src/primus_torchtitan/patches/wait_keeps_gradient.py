"""`AsyncCollectiveTensor.wait`, which cuts the tensor off from its gradient; `local_map` calls it on what it gets.

TorchTitan's experts run in a `local_map`. Their input is gathered over the sequence before, and that tensor is still on
its way where a micro-batch has one sequence: for several, the parts are joined, which waits. Then the gradient that
comes through the experts is lost, without a word.
"""

from __future__ import annotations

from typing import Any

from primus_torchtitan.patches._patch import patch

__all__ = ["PATCH"]


def _apply() -> None:
    import torch
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    wait = AsyncCollectiveTensor.wait

    class Waited(torch.autograd.Function):  # type: ignore[misc]  # torch is not typed here
        @staticmethod
        def forward(ctx: Any, tensor: Any) -> torch.Tensor:
            return wait(tensor).detach()

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
            return gradients[0]

    def wait_with_gradient(self: Any) -> torch.Tensor:
        return Waited.apply(self) if torch.is_grad_enabled() and self.requires_grad else wait(self)

    AsyncCollectiveTensor.wait = wait_with_gradient


PATCH = patch(
    id="wait-keeps-gradient",
    reason="torch's AsyncCollectiveTensor.wait cuts gradients off; with tensor parallelism, experts lost theirs",
    link="https://github.com/pytorch/pytorch/issues/151240",
    needed=lambda: True,
    apply=_apply,
)
