"""Tensors that Megatron places on `cuda` stay on the CPU: a mode that redirects the device of each call of torch."""

from __future__ import annotations

from typing import Any

from primus_megatron.patches._patch import no_accelerator, patch

__all__ = ["PATCH"]


def _is_cuda(device: Any) -> bool:
    """A device by name or number. (`True` is no number: `.to(x, non_blocking)`.)"""
    if isinstance(device, bool):
        return False
    return isinstance(device, int) or str(device).startswith("cuda")


def _mode() -> Any:
    import torch
    from torch.overrides import TorchFunctionMode

    cpu = torch.device("cpu")
    is_cuda = torch.Tensor.is_cuda.__get__
    stays = (torch.Tensor.cuda, torch.Tensor.pin_memory)
    names = {torch.float32: "Float", torch.float16: "Half", torch.bfloat16: "BFloat16"}

    class CudaIsCpu(TorchFunctionMode):  # type: ignore[misc]  # torch's types are not read
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = dict(kwargs or {})
            if func in stays:
                return args[0]
            if func == is_cuda:
                return True
            if func is torch.Tensor.type and len(args) == 1 and not kwargs and args[0].dtype in names:
                return f"torch.cuda.{names[args[0].dtype]}Tensor"  # by which Megatron tells a tensor's kind
            if kwargs.get("device") is not None and _is_cuda(kwargs["device"]):
                kwargs["device"] = cpu
            kwargs.pop("pin_memory", None)
            if func is torch.Tensor.to and len(args) > 1 and _is_cuda(args[1]):
                args = (args[0], cpu, *args[2:])
            return func(*args, **kwargs)

    return CudaIsCpu()


def _apply() -> None:
    import torch

    _mode().__enter__()
    torch.nn.Module.cuda = lambda self, device=None: self
    loader = torch.utils.data.DataLoader
    begin = loader.__init__

    def unpinned(self: Any, *args: Any, pin_memory: bool = False, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)  # pinning asks a device of its own thread, which no mode reaches

    loader.__init__ = unpinned
    # Before a mode is asked, torch looks at the stream, which is none here.
    torch.Tensor.record_stream = lambda self, stream: None


PATCH = patch(
    id="cpu-tensors",
    reason="Megatron writes device='cuda' and .cuda() in some sixty places",
    link="https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/training.py",
    needed=no_accelerator,
    apply=_apply,
)
