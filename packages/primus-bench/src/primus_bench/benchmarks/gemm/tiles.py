"""The tiles that our Triton kernel tries on each architecture: `tiles.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

__all__ = ["Tiles", "load", "of"]

Tile = tuple[int, int, int, int, int]
"""BLOCK_M, BLOCK_N, BLOCK_K, stages, warps."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """Those of one architecture."""

    architecture: str
    vendor: str
    shared_kib: int
    """Shared memory (LDS) of a program, at most."""
    by_width: Mapping[int, tuple[Tile, ...]]
    """By bytes per element."""
    options: Mapping[str, int] = field(default_factory=dict)
    """Further ones for Triton's compiler."""


@cache
def load() -> tuple[Tiles, ...]:
    """All architectures, in the file's order."""
    text = (Path(__file__).parent / "tiles.toml").read_text(encoding="utf-8")
    return tuple(
        Tiles(name, row["vendor"], row["shared_kib"],
              {width: tuple(map(tuple, row[f"tiles_{width}"])) for width in (1, 2, 4)}, row.get("options", {}))
        for name, row in tomllib.loads(text).items()
    )  # fmt: skip


def of(architecture: str, vendor: str) -> Tiles:
    """Those of that architecture, or of the first one of the vendor."""
    own = [tiles for tiles in load() if tiles.architecture == architecture]
    return next(iter(own or [tiles for tiles in load() if tiles.vendor == vendor]))
