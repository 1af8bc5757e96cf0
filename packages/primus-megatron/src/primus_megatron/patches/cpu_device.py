"""Lets the CPU answer where Megatron asks `torch.cuda`: for the device, random states, streams, events and memory."""

from __future__ import annotations

import contextlib
import os
import resource
import time
import types
from typing import Any

from primus_megatron.patches._patch import no_accelerator, patch

__all__ = ["PATCH"]


class CpuStream:
    """The only stream: what is asked of it is done already."""

    cuda_stream = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def record_event(self, event: CpuEvent | None = None) -> CpuEvent:
        return event or CpuEvent()

    def query(self) -> bool:
        return True

    def synchronize(self, *args: Any) -> None: ...

    wait_stream = wait_event = synchronize


class CpuEvent:
    """A point in time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.at = time.perf_counter()

    def record(self, stream: CpuStream | None = None) -> None:
        self.at = time.perf_counter()

    def elapsed_time(self, other: CpuEvent) -> float:
        """In milliseconds, as CUDA's."""
        return (other.at - self.at) * 1e3

    def query(self) -> bool:
        return True

    def synchronize(self, *args: Any) -> None: ...

    wait = synchronize


class _Generators:
    """`torch.cuda.default_generators`: the CPU's, whichever device is asked for."""

    def __getitem__(self, index: int) -> Any:
        import torch

        return torch.default_generator


def _nothing(*args: Any, **kwargs: Any) -> None:
    """What a CPU need not do."""


def _peak_bytes(*args: Any, **kwargs: Any) -> int:
    """The peak of the process; unlike a device's it cannot be reset."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _properties(*args: Any, **kwargs: Any) -> types.SimpleNamespace:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return types.SimpleNamespace(name="CPU", major=0, minor=0, multi_processor_count=1, total_memory=total)


def _answers(torch: Any) -> dict[str, Any]:
    stream, cpu = CpuStream(), torch.device("cpu")
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: cpu,
        "get_device_name": lambda *_: "CPU",
        "get_device_capability": lambda *_, **__: (0, 0),
        "get_device_properties": _properties,
        "is_bf16_supported": lambda *_, **__: True,
        "is_current_stream_capturing": lambda: False,
        "Stream": CpuStream,
        "Event": CpuEvent,
        "current_stream": lambda *_: stream,
        "default_stream": lambda *_: stream,
        "stream": lambda *_: contextlib.nullcontext(),
        "device": lambda *_: contextlib.nullcontext(),
        "_lazy_call": lambda call, **_: call(),  # runs at once: nothing needs to be initialized first
        "default_generators": _Generators(),
        "manual_seed": torch.default_generator.manual_seed,
        "initial_seed": torch.initial_seed,
        "memory_stats": lambda *_, **__: {},
        "mem_get_info": lambda *_: (_properties().total_memory,) * 2,
    }


_IDLE = ("set_device", "init", "_lazy_init", "synchronize", "empty_cache", "ipc_collect", "set_stream")
_IDLE_TOO = ("manual_seed_all", "reset_peak_memory_stats")
_PEAKS = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")


def _apply() -> None:
    import torch

    cuda = torch.cuda
    answers = _answers(torch) | dict.fromkeys((*_IDLE, *_IDLE_TOO), _nothing) | dict.fromkeys(_PEAKS, _peak_bytes)
    for name, answer in answers.items():
        setattr(cuda, name, answer)
    for module in (cuda, cuda.random):
        module.get_rng_state = lambda *_, **__: torch.get_rng_state()
        module.set_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    for name in ("range_push", "range_pop", "mark"):
        setattr(cuda.nvtx, name, _nothing)
    # Megatron compiles small functions; on a CPU that costs minutes of g++, and importing the compiler seconds.
    torch.compile = lambda model=None, **_: model if model is not None else (lambda function: function)


PATCH = patch(
    id="cpu-device",
    reason="Megatron's training loop asks torch.cuda for its device, streams, random states and memory",
    link="https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/initialize.py",
    needed=no_accelerator,
    apply=_apply,
)
