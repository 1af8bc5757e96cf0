"""What `PREFIX.json` says of a prefix: how it was made, with which tokenizer. Data of other tools has no such file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from primus_machine.errors import RequestError
from primus_machine.files import plain_json
from primus_machine.files.atomic import read_regular, write_atomically

__all__ = ["expect_one_tokenizer", "read", "vocabulary", "write_derived"]


def read(prefix: str) -> Mapping[str, Any]:
    """All of it; nothing, where it is not there or cannot be read."""
    with suppress(OSError, ValueError):
        found = plain_json.loads(read_regular(f"{prefix}.json"))
        return found if isinstance(found, dict) else {}
    return {}


def vocabulary(prefix: str) -> int:
    """How many tokens the tokenizer has that made the data; 0: the record does not say, or is of other data.

    Raises:
        OSError: the data cannot be read.
    """
    found = read(prefix)
    tokenizer = found.get("tokenizer")
    size = tokenizer.get("vocab_size") if isinstance(tokenizer, dict) else None
    is_of_these = found.get("bytes") == os.path.getsize(f"{prefix}.bin")
    return size if is_of_these and type(size) is int and size > 0 else 0


def write_derived(made_by: str, prefixes: Sequence[str], prefix: str, **known: object) -> None:
    """Say of `prefix` what all these have in common: their tokenizer, if it is known of each.

    A file of that name which says nothing of a prefix, such as raw text, stays.

    Raises:
        OSError: it cannot be written.
    """
    path = f"{prefix}.json"
    if os.path.lexists(path) and "outcome" not in read(prefix):
        return
    outcomes = {_tokenizer(one) for one in prefixes}
    if "" in outcomes or len(outcomes) > 1:
        with suppress(FileNotFoundError):
            os.unlink(path)  # it is of data that was there before
        return
    found = {
        "outcome": {"tokenizer": outcomes.pop()},
        "tokenizer": read(prefixes[0]).get("tokenizer"),
        "made_by": made_by,
        "inputs": [{"prefix": one} for one in prefixes],
        **known,
    }
    write_atomically(path, json.dumps(found, indent=2) + "\n")


def expect_one_tokenizer(prefixes: Sequence[str]) -> None:
    """Refuse prefixes of which two are known to have different tokenizers: their ids mean different words.

    Raises:
        RequestError: they have.
    """
    known = {prefix: _tokenizer(prefix) for prefix in prefixes}
    first = next(filter(known.get, prefixes), "")
    for prefix in prefixes:
        if known[prefix] and known[prefix] != known[first]:
            why = f"{prefix}.json says {_shown(known[prefix])}, and {first}.json says {_shown(known[first])}"
            fix = "prepare both with one tokenizer"
            raise RequestError(f"'{prefix}' and '{first}' have different tokenizers", why=why, fix=fix)


def _tokenizer(prefix: str) -> str:
    outcome = read(prefix).get("outcome")
    return str(outcome.get("tokenizer", "")) if isinstance(outcome, dict) else ""


def _shown(tokenizer: str) -> str:
    """Its type and the beginning of its digest."""
    return tokenizer[:-56] if len(tokenizer) > 64 else tokenizer
