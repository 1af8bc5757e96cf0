"""Process groups on the CPU: gloo where Megatron names NCCL, and no device for a barrier."""

from __future__ import annotations

from typing import Any

from primus_megatron.patches._patch import no_accelerator, patch

__all__ = ["PATCH"]


def _gloo(make: Any) -> Any:
    def made(*args: Any, **kwargs: Any) -> Any:
        for name in ("device_id", "pg_options"):
            kwargs.pop(name, None)
        if kwargs.get("backend") == "nccl":
            kwargs["backend"] = "gloo"
        return make(*args, **kwargs)

    return made


def _apply() -> None:
    import torch.distributed as dist

    dist.init_process_group, dist.new_group = _gloo(dist.init_process_group), _gloo(dist.new_group)
    barrier = dist.barrier
    dist.barrier = lambda group=None, async_op=False, device_ids=None: barrier(group=group, async_op=async_op)


PATCH = patch(
    id="cpu-collectives",
    reason="Megatron names NCCL and a device for process groups and barriers, whatever distributed_backend says",
    link="https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/parallel_state.py",
    needed=no_accelerator,
    apply=_apply,
)
