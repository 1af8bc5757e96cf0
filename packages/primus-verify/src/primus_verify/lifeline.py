"""Processes that end with the one that started them."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["ending_with_parent"]

_STARTER = """
import os, sys
from primus_machine.processes import end_with_parent
end_with_parent()
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Becomes the program that it is given, which ends with the verification."""


def ending_with_parent(argv: Sequence[str]) -> list[str]:
    """Return the command that becomes `argv` and ends with this process.

    JAX has threads by now, which `preexec_fn` would fork in the middle of what they do.
    """
    return [sys.executable, "-P", "-c", _STARTER, *argv]
