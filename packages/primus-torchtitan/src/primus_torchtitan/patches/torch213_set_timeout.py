"""`torch.distributed.set_timeout`, which torch has since 2.14 and TorchTitan calls after the first step."""

from __future__ import annotations

from typing import Any

from primus_torchtitan.patches._patch import patch, torch_before_2_14

__all__ = ["PATCH"]


def _apply() -> None:
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import _set_pg_timeout

    def set_timeout(timeout: Any, group: Any = None) -> None:
        _set_pg_timeout(timeout, group)

    dist.set_timeout = set_timeout


PATCH = patch(
    id="torch213-set-timeout",
    reason="TorchTitan 0.3 calls torch.distributed.set_timeout, new in torch 2.14",
    link="https://docs.pytorch.org/docs/stable/distributed.html",
    needed=torch_before_2_14,
    apply=_apply,
)
