"""Which files a split consists of, and in which order: what the library `datasets` finds in the same repository.

A repository says it in the front matter of its README (`configs`), or by the names of its files. No code of it is run.
Source: `datasets/data_files.py` and `datasets/builder.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

from primus_data.fetching import formats
from primus_machine.errors import RequestError, suggestion
from primus_machine.text import printable

__all__ = ["CONVERTED", "Configs", "Files", "files_of", "find"]

CONVERTED = "refs/convert/parquet"
"""The revision where the Hub keeps a dataset as parquet, whatever its own format: folders for configs and splits."""

Splits = dict[str, list[str]]
"""The files of each split."""
Configs = Mapping[str, Callable[[], Splits]]
"""What finds the splits of each config: datasets have thousands of configs and of files."""

_SHARDED = re.compile(r"data/(?P<split>[^/]+)-[0-9]{5}-of-[0-9]{5}[^/]*\.[^/]*")
_KEYWORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_IN_FOLDERS = ("**/{0}/**", "**/{0}[-._ 0-9]*/**", "**/*[-._ 0-9]{0}/**", "**/*[-._ 0-9]{0}[-._ 0-9]*/**")
_IN_NAMES = ("**/{0}[-._ 0-9]*", "**/*[-._ 0-9]{0}[-._ 0-9]*")
_NO_DATA = ("config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "README.md")


def find(names: Iterable[str], card: Mapping[str, Any], revision: str = "") -> tuple[Configs, str]:
    """The configs of a repository with these files, and the one that is meant without a name (empty: none is).

    Raises:
        RequestError: its README names no files that are there.
    """
    known = sorted(names)
    if revision == CONVERTED:
        return _converted(known), "default"
    declared = [one for one in _list(card.get("configs")) if isinstance(one, dict)]
    if not any(one.get("data_files") or one.get("data_dir") for one in declared):
        return {"default": partial(_by_name, known, "")}, "default"
    found: dict[str, Callable[[], Splits]] = {}
    for one in declared:
        found[str(one.get("config_name") or "default")] = partial(_declared, one, known)
    chosen = [str(one.get("config_name") or "default") for one in declared if one.get("default") is True]
    only = next(iter(found)) if len(found) == 1 else ""
    return found, chosen[0] if chosen else ("default" if "default" in found else only)


class Files(NamedTuple):
    """Of a split."""

    chosen: list[str]
    """All of one format; empty: no split of the config has any."""
    others: list[str]
    """Those of other formats."""


def files_of(configs: Configs, config: str, split: str, whose: str) -> Files:
    """The files of a split.

    Raises:
        RequestError: there is no such config or split.
    """
    if config not in configs:
        names = ", ".join(list(configs)[:50])
        what = f"{whose} has no config '{config}'" if config else f"{whose} has several configs, and no default"
        near = suggestion(config, configs)
        raise RequestError(what, why=f"its configs: {names}", fix=near or "choose one with --name")
    splits = {name: files for name, found in configs[config]().items() if (files := _of_one_kind(found)).chosen}
    if splits and split not in splits:
        what = f"config '{config}' of {whose} has no split '{split}'"
        near = suggestion(split, splits)
        raise RequestError(what, why=f"its splits: {', '.join(splits)}", fix=near or "choose one with --split")
    return splits.get(split, Files([], []))


def _of_one_kind(names: list[str]) -> Files:
    """Take the most common format: beside the data lie files that describe it."""
    kinds = {name: kind.kind for name in names if (kind := formats.of(name))}
    most = max(Counter(kinds.values()).items(), key=itemgetter(1), default=("", 0))[0]
    return Files([name for name in kinds if kinds[name] == most], [name for name in kinds if kinds[name] != most])


def _list(value: object) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _converted(names: list[str]) -> Configs:
    found: dict[str, Splits] = {}
    for name in names:
        if name.count("/") == 2 and formats.of(name):
            config, split, _ = name.split("/")
            found.setdefault(config, {}).setdefault(split.removeprefix("partial-"), []).append(name)
    return {config: partial(dict, splits) for config, splits in found.items()}


def _declared(config: Mapping[str, Any], names: list[str]) -> Splits:
    below = str(config.get("data_dir") or "").strip("/")
    files = config.get("data_files")
    if not files:
        return _by_name(names, f"{below}/" if below else "")
    rows = [one for one in _list(files) if isinstance(one, dict) and "split" in one]
    patterns = {str(one["split"]): _list(one.get("path")) for one in rows} or {"train": _list(files)}
    prefix = f"{below}/" if below else ""
    shapes = {split: [f"{prefix}{_plain(str(one))}" for one in some] for split, some in patterns.items()}
    return {split: _matching(names, some) for split, some in shapes.items()}


def _plain(pattern: str) -> str:
    return pattern.removeprefix("./")


def _by_name(names: list[str], prefix: str) -> Splits:
    """The splits that the names of files and folders tell."""
    names = [name for name in names if name.startswith(prefix)]
    inner = [name.removeprefix(prefix) for name in names if not _is_hidden(name.removeprefix(prefix), "")]
    sharded = [(found["split"], f"{prefix}{name}") for name in inner if (found := _SHARDED.fullmatch(name))]
    if sharded:
        order = [*_KEYWORDS, *sorted({split for split, _ in sharded})]
        found_in: Splits = {}
        for split, name in sorted(sharded, key=lambda pair: (order.index(pair[0]), pair[1])):
            found_in.setdefault(split, []).append(name)
        return found_in
    for shapes in (_IN_FOLDERS, _IN_NAMES):
        found_by = {
            split: _matching(inner, [shape.format(word) for word in words for shape in shapes])
            for split, words in _KEYWORDS.items()
        }
        if any(found_by.values()):
            return {split: [f"{prefix}{name}" for name in some] for split, some in found_by.items() if some}
    return {"train": [f"{prefix}{name}" for name in _matching(inner, ["**"])]}


def _matching(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """The files that match, pattern by pattern, each once.

    Raises:
        RequestError: a pattern is none.
    """
    from fsspec.utils import glob_translate  # of huggingface_hub; what `datasets` matches with

    found: dict[str, None] = {}
    for pattern in patterns:
        try:
            shape = re.compile(glob_translate(pattern))
        except (ValueError, re.error) as error:
            what = f"the README of the dataset names its files by '{printable(pattern)[:100]}', which is not a pattern"
            raise RequestError(what, why=str(error), fix="choose another config with --name") from None
        found |= dict.fromkeys(
            name
            for name in names
            if shape.match(name) and not _is_hidden(name, pattern) and formats.of(name) and not _is_card(name)
        )
    return list(found)


def _is_card(name: str) -> bool:
    return name.rpartition("/")[2] in _NO_DATA


def _is_hidden(name: str, pattern: str) -> bool:
    """Whether a part of the path begins with a dot or two underscores, and the pattern names no such part."""
    return any(
        sum(part.startswith(mark) for part in name.split("/"))
        != sum(part.startswith(mark) for part in pattern.split("/"))
        for mark in (".", "__")
    )
