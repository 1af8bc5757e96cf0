"""What the tests of runtimes, tasks and backends take from Primus: machines and documents to plan with, and what was
logged, in place of stderr and the run's file (docs/logging.md).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

from primus_core.config.document import Document, Path
from primus_machine.facts import Facts, Gpu
from primus_machine.host import HostRoot

__all__ = ["capture_logs", "document_of", "facts_of"]


@contextmanager
def capture_logs() -> Iterator[list[MutableMapping[str, Any]]]:
    """What all loggers of `get_logger` log meanwhile, like `structlog.testing.capture_logs`, with context variables."""
    from structlog.contextvars import merge_contextvars
    from structlog.testing import LogCapture

    from primus_core.logger.processors import PROCESSORS

    captured, before = LogCapture(), PROCESSORS.copy()
    PROCESSORS[:] = [merge_contextvars, captured]
    try:
        yield captured.entries
    finally:
        PROCESSORS[:] = before


def document_of(data: Mapping[str, Any], place: str = "exp.yaml") -> Document:
    """A document with `data`, where every key claims to stand at `place:1`, `place:2`, ..."""
    marks: dict[Path, str] = {(): place}

    def walk(value: Any, path: Path) -> None:
        if isinstance(value, Mapping):
            for key, below in value.items():
                marks[*path, key] = f"{place}:{len(marks)}"
                walk(below, (*path, key))

    walk(data, ())
    return Document(dict(data), marks)


def facts_of(*, gpus: int = 0, environ: Mapping[str, str] | None = None, cpu_count: int = 2) -> Facts:
    """A machine with so many GPUs (MI300X) and CPUs."""
    host = HostRoot(environ=environ or {})
    devices = tuple(_mi300x(index) for index in range(gpus))
    return Facts(dict(environ or {}), "node0", "/work", 0.0, sys.executable, cpu_count, devices, {}, host)


def _mi300x(index: int) -> Gpu:
    return Gpu(
        vendor="amd",
        pci_address=f"0000:{index:02x}:00.0",
        device_id=0x74A1,
        model="MI300X",
        architecture="gfx942",
        memory_bytes=206141652992,
        gpu=index,
        mode="SPX/NPS1",
    )
