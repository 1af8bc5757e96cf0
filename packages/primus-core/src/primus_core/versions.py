"""Versions of packages, compared by the rules of PEP 440."""

from __future__ import annotations

from packaging.version import Version

__all__ = ["order", "release"]


def order(version: str) -> Version:
    """What versions are sorted by: `0.19.2rc1` comes before `0.19.2`, and that before `0.19.10`.

    Raises:
        packaging.version.InvalidVersion: it is no version.
    """
    return Version(version)


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version without its suffixes: `2.13.0rc1+cpu` as (2, 13, 0).

    Raises:
        packaging.version.InvalidVersion: it is no version.
    """
    return Version(version).release
