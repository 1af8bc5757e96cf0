"""How many threads libraries start: they read it from the environment when they make their pools, once a process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["limited"]


@contextmanager
def limited(variable: str, threads: int) -> Iterator[None]:
    """Let libraries that make their pool meanwhile, and read this variable, start so many threads."""
    before = os.environ.get(variable)
    os.environ[variable] = str(threads)
    try:
        yield
    finally:
        del os.environ[variable]
        if before is not None:
            os.environ[variable] = before
