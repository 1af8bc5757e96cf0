"""Keeps what was found out about a tokenizer, so that a later command need not load the reference library for it.

It holds for one content: the tokenizer, what was asked, and the versions of the libraries.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from typing import Any

from primus_core.environment.resolve import cache
from primus_machine.files import plain_json, trust
from primus_machine.files.atomic import PRIVATE_FOLDER, read_regular, write_atomically
from primus_machine.host import HostRoot
from primus_machine.packages import packages

__all__ = ["Kept"]

_LIBRARIES = ("primus-data", "tokenizers", "tiktoken", "sentencepiece")


class Kept:
    """One answer, in the person's cache. `key`: all that decides it, beside the versions of libraries."""

    def __init__(self, *key: object) -> None:
        self._environ = HostRoot().environ
        installed = packages()
        text = json.dumps([*key, [installed.get(name) for name in _LIBRARIES]])
        self.path = f"{cache(self._environ)}/tokenizers/{hashlib.sha256(text.encode()).hexdigest()}.json"

    def read(self) -> Any:
        """Return the answer; None: it is not kept, or others could have written it."""
        if trust.of(self._environ).doubt_place(self.path):
            return None
        with suppress(OSError, ValueError):
            return plain_json.loads(read_regular(self.path))
        return None

    def write(self, answer: object) -> None:
        """Keep it. Without room for it, it is found out again."""
        with suppress(OSError):
            os.makedirs(os.path.dirname(self.path), PRIVATE_FOLDER, exist_ok=True)
            write_atomically(self.path, json.dumps(answer))
