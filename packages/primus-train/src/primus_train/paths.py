"""Paths in an experiment are relative to the file that names them, as `extends` is, and absolute from then on.

So an experiment runs from any folder, and so does a saved one. Relative to the folder of the person are paths on the
command line, paths in presets that come with a package, and folders to write in, as `workspace` is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from primus_core.config import submission
from primus_core.config.document import Document, Path, at

__all__ = ["PathKind", "anchored", "relative"]

PathKind = Literal["path", "name", "blend", "mixture", "output"]
"""`path`: of a file or folder; `name`: a path, or a name that something else looks up; `blend`: paths with weights;
`mixture`: the same in MaxText's form, `a,0.7;b,0.3`; `output`: a folder to write in."""
OF_DATA: Mapping[str, PathKind] = {
    "data.text": "path",
    "data.input": "path",
    "data.tokenizer_model": "path",
    "data.train_data_path": "blend",
    "data.valid_data_path": "blend",
    "data.cache": "output",
}
"""Settings of the section that all backends have."""
STDLIB = "python-stdlib"
_PARTS = {"data": "data.", "config": "", "overrides": ""}
"""The parts of a module that have settings, and how the names of these begin."""


def anchored(settings: Document, kinds: Mapping[str, PathKind], cwd: str, packaged: Sequence[str]) -> Document:
    """Return the settings with absolute paths.

    `kinds`: the backend's settings that are paths. `packaged`: folders of packages, each with a `/` at its end.
    """
    data = _copied(settings.data)
    for path, kind, value, is_output in _paths(_settings(data, (), ""), kinds):
        folder = cwd if is_output else _folder(settings.where(path), settings.files, cwd, packaged)
        at(data, path[:-1])[path[-1]] = _anchored(value, kind, folder)
    return Document(data, settings.marks, settings.files)


def relative(
    experiment: Document, module: str, kinds: Mapping[str, PathKind], cwd: str, packaged: Sequence[str]
) -> dict[Path, Any]:
    """Return the settings of a module that are relative paths, by their place in the experiment, with absolute paths.

    Folders to write in are none: they mean the same wherever the file is.
    """
    found = list[_Setting]()
    for part, prefix in _PARTS.items():
        path: Path = ("modules", module, part)
        if isinstance(section := at(experiment.data, path), Mapping):
            found += _settings(section, path, prefix)
    absolute: dict[Path, Any] = {}
    for path, kind, value, is_output in _paths(found, kinds):
        folder = _folder(experiment.where(path), experiment.files, cwd, packaged)
        whole = _anchored(value, kind, folder)
        if not is_output and whole != _anchored(value, kind, "/"):  # `~/text` is the same from any folder
            absolute[path] = whole
    return absolute


_Setting = tuple[Path, str, Any]
"""Where it is, its name with dots, and its value."""


def _settings(data: Mapping[str, Any], path: Path, name: str) -> Iterator[_Setting]:
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _settings(value, (*path, key), f"{name}{key}.")
        else:
            yield (*path, key), f"{name}{key}", value


def _paths(
    settings: Iterator[_Setting] | list[_Setting], kinds: Mapping[str, PathKind]
) -> Iterator[tuple[Path, PathKind, Any, bool]]:
    """Yield those that are paths, and whether each is relative to the current folder."""
    kinds = {**OF_DATA, **kinds}
    found = [(path, kinds[name], value, name) for path, name, value in settings if name in kinds and value]
    # What is loaded from where it is saved is that folder.
    outputs = [value for _, kind, value, name in found if kind == "output" and name not in OF_DATA]
    for path, kind, value, _ in found:
        yield path, kind, value, kind == "output" or value in outputs


def _folder(mark: str, files: Sequence[str], cwd: str, packaged: Sequence[str]) -> str:
    """Return what a path is relative to that stands at `mark` (`file:line`, or `command line`)."""
    file = next((one for one in (mark, mark.rpartition(":")[0]) if one in files), "")
    whole = submission.original(submission.absolute(file, cwd)) if file else ""
    return os.path.dirname(whole) if whole and not whole.startswith(tuple(packaged)) else cwd


def _anchored(value: Any, kind: PathKind, folder: str) -> Any:
    if isinstance(value, list):
        weighted = kind == "blend" and _is_weighted(value)
        return [
            one if (weighted and not at % 2) or (kind == "blend" and _is_misplaced(one, folder))
            else _anchored(one, "path", folder)
            for at, one in enumerate(value)
        ]  # fmt: skip
    if not isinstance(value, str):
        return value
    if kind == "mixture":
        return ";".join(_anchored(part, "path", folder) if part else part for part in value.split(";"))
    words = value.split() if kind == "blend" else []
    if len(words) > 1:
        # A text stays one: errors about its paths say that it was split.
        whole = _anchored(words, kind, folder)
        return whole if any(len(word.split()) > 1 for word in whole) else " ".join(whole)
    if value == STDLIB or "://" in value or "${" in value:
        return value
    path = os.path.join(folder, os.path.expanduser(value))
    return value if kind == "name" and not os.path.lexists(path) else os.path.normpath(path)


def _is_weighted(words: Sequence[Any]) -> bool:
    return len(words) > 1 and len(words) % 2 == 0 and all(map(_is_number, words[::2]))


def _is_misplaced(word: Any, folder: str) -> bool:
    """Whether a word is a weight where a path should be, which the backend refuses as it was written."""
    return _is_number(word) and not os.path.exists(os.path.join(folder, f"{word}.bin"))


def _is_number(word: Any) -> bool:
    try:
        float(word)
    except (TypeError, ValueError):
        return False
    return True


def _copied(data: Any) -> Any:
    return {key: _copied(value) for key, value in data.items()} if isinstance(data, Mapping) else data
