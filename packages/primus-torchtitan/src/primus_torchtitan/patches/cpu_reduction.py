"""Gradient reduction on the CPU: gloo has no pre-multiplied sum, so FSDP is told to use a plain one."""

from __future__ import annotations

from typing import Any

from primus_torchtitan.patches._patch import no_accelerator, patch

__all__ = ["PATCH"]


def _apply() -> None:
    from torchtitan.distributed import fsdp

    no_division = fsdp.disable_fsdp_gradient_division

    def no_division_and_plain_sum(model: Any) -> None:
        no_division(model)
        for module in model.modules():
            if isinstance(module, fsdp.FSDPModule):
                module.set_force_sum_reduction_for_comms(True)

    fsdp.disable_fsdp_gradient_division = no_division_and_plain_sum


PATCH = patch(
    id="cpu-reduction",
    reason="a gradient divide factor makes FSDP reduce with PREMUL_SUM, which gloo does not have",
    link="https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html",
    needed=no_accelerator,
    apply=_apply,
)
