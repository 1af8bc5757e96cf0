"""What Primus itself says where no primus.yaml does: the kernel's file, and the defaults of the runtimes that are here.

A package brings those of its runtime as `<runtime>.toml` in a folder, by an entry point of the runtime's name in the
group `primus.defaults`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from primus_core.config.document import Document, Path
from primus_core.installed import data_folders
from primus_core.installed.data_folders import Folder
from primus_machine.errors import ConfigError

__all__ = ["FILE", "NAME", "kernel", "of_all_runtimes", "of_runtime"]

NAME = "packaged"
"""What these values have for a place."""
FILE = os.path.normpath(os.path.join(os.path.dirname(__file__), "../data/primus.toml"))
_GROUP = "primus.defaults"


def kernel() -> Document:
    """The kernel's own."""
    return _read(FILE)


def of_runtime(runtime: str) -> Document:
    """The defaults of the options of one runtime, below its name; nothing where no package brings some.

    Raises:
        ConfigError: two packages do, or the file cannot be read.
    """
    found = [folder for folder in data_folders.installed(_GROUP) if folder.name == runtime]
    if len(found) > 1:
        raise ConfigError(
            f"two packages have defaults for the runtime '{runtime}'",
            why=" and ".join(folder.source for folder in found),
            fix="uninstall one of them",
        )
    return _read(_file_in(found[0])).below((runtime,)) if found else Document({})


def of_all_runtimes() -> Document:
    """Those of all that are here."""
    result = Document({})
    for name in sorted({folder.name for folder in data_folders.installed(_GROUP)}):
        result = of_runtime(name).merged_onto(result)
    return result


def _file_in(folder: Folder) -> str:
    wanted = os.path.join(folder.path, f"{folder.name}.toml")
    if wanted not in data_folders.files(folder, "defaults", (".toml",)):
        raise ConfigError(
            f"the defaults of {folder.source} are not there",
            where=wanted,
            fix="reinstall the package, or remove it; `primus plugins` lists its entry points",
        )
    return wanted


def _read(path: str) -> Document:
    import tomllib

    try:
        with open(path, "rb") as file:
            data = tomllib.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError("these defaults cannot be read", where=path, why=str(error), fix="reinstall it") from None
    return Document(data, dict.fromkeys(_keys(data), NAME))


def _keys(data: Mapping[str, Any], above: Path = ()) -> Iterator[Path]:
    """The path of each key, of tables and of what is in them."""
    for name, value in data.items():
        yield (*above, name)
        if isinstance(value, Mapping):
            yield from _keys(value, (*above, name))
