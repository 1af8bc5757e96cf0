"""Versions of packages, compared by the rules of PEP 440."""

from __future__ import annotations

from packaging.version import Version

from primus_machine.packages import version_of

__all__ = ["older_note", "order", "release"]


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


def older_note(package: str, tested: str, why: str) -> tuple[str, ...]:
    """What to tell where an older version of a package is installed than the oldest that we test with; or nothing."""
    installed = version_of(package)
    older = installed and release(installed) < release(tested)
    return (f"{package} {installed} is older than {tested}, the oldest tested version: {why}",) if older else ()
