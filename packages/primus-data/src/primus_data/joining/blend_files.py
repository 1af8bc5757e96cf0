"""Files with a blend: YAML for an experiment, and the words that Megatron's `--data-args-path` reads."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from primus_core.config import files
from primus_data.indexed.layout import regular
from primus_data.joining.blending import Blend
from primus_machine.errors import ConfigError, MachineError, RequestError
from primus_machine.files import plain_json
from primus_machine.files.atomic import write_atomically

__all__ = ["prefixes_of", "read", "words", "write"]

_KEYS = ("train_data_path", "data_path")


def prefixes_of(words: Sequence[Any], where: str) -> list[tuple[str, float | None]]:
    """`[0.3, web, 0.7, books]` or `[web, books]`, as prefixes with their weights.

    Raises:
        ConfigError: it is neither.
    """
    numbers = [_number(word) for word in words]
    is_weighted = len(words) > 1 and len(words) % 2 == 0 and all(number is not None for number in numbers[::2])
    names, weights = (words[1::2], numbers[::2]) if is_weighted else (words, [None] * len(words))
    found = []
    for name, weight in zip(names, weights, strict=True):
        if not isinstance(name, str) or (weight is not None and not 0 < weight < 1e18):
            what = f"{name!r} is not a path" if not isinstance(name, str) else f"'{name}' has the weight {weight:g}"
            raise ConfigError(what, where=where, fix="name paths, either all with a weight before them, or none")
        found.append((name, weight))
    return found


def _number(word: Any) -> float | None:
    try:
        return float(word) if isinstance(word, int | float | str) and not isinstance(word, bool) else None
    except (ValueError, OverflowError):
        return None


def read(path: str, environ: Mapping[str, str]) -> list[tuple[str, float | None]]:
    """The blend that a file names: as `write` writes it, or a list of words.

    Raises:
        ConfigError: it names none.
        MachineError: it cannot be read.
    """
    if path.endswith(".txt"):
        try:
            with open(path, encoding="utf-8", opener=regular) as file:
                return prefixes_of(file.read(1 << 24).split(), path)
        except OSError as error:
            raise MachineError(f"'{path}' cannot be read", why=str(error.strerror)) from None
        except UnicodeDecodeError:
            raise ConfigError("it is not UTF-8", where=path) from None
    document = files.read(path, environ)
    key = next((key for key in _KEYS if key in document.data), "")
    value = document.data.get(key)
    listed = value.split() if isinstance(value, str) else value
    if not isinstance(listed, list) or not listed:
        raise ConfigError(f"there is no list '{_KEYS[0]}'", where=path, fix="list weights and prefixes in it")
    return prefixes_of(listed, document.where((key,)))


def words(found: Blend) -> str:
    """As on Megatron's command line.

    Raises:
        RequestError: a prefix has a space in it, where Megatron ends a word.
    """
    for one in found.sources:
        if len(one.prefix.split()) != 1:
            fix = "rename or link it, or write YAML"
            raise RequestError(f"'{one.prefix}' has a space, where Megatron's list of words would end it", fix=fix)
    return " ".join(f"{word:.9g}" if isinstance(word, float) else word for word in found.words)


def write(found: Blend, path: str) -> None:
    """Write it in the form of the path's suffix.

    Raises:
        RequestError: the path is there, or a prefix does not fit into the form.
        MachineError: it cannot be written.
    """
    if os.path.lexists(path):
        raise RequestError(f"output '{path}' exists", fix="remove it, or choose another --output")
    if path.endswith(".txt"):
        text = words(found)
    elif path.endswith(".json"):
        text = plain_json.dumps(found.to_dict(), indent=1)
    else:
        text = _yaml(found)
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        write_atomically(path, text + "\n")
    except OSError as error:
        raise MachineError(f"'{path}' cannot be written", why=str(error.strerror)) from None


def _yaml(found: Blend) -> str:
    """The setting, with what it means. A JSON text is a YAML scalar."""
    rows = [f"  - {one.weight:.9g}\n  - {plain_json.dumps(one.prefix)}  # {one.tokens} tokens" for one in found.sources]
    return "\n".join(["train_data_path:", *rows])
