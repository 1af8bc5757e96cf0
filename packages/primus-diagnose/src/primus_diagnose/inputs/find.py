"""From the paths that a user names to everything in them that can be read."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath

from primus_core.errors import MachineError, RequestError
from primus_core.runs.state import is_run
from primus_diagnose.inputs import names, records, run_directory
from primus_diagnose.inputs.gathered import Gathered
from primus_diagnose.scan.source import Source
from primus_machine.files import recorder
from primus_machine.files.atomic import regular
from primus_machine.host import HostRoot

__all__ = ["gather"]

_MOST_FILES = 200_000
_MOST_JSON = 1 << 26
_LEFT_OUT = {".git", "__pycache__", "node_modules", "checkpoints", "site-packages", "wandb", "tensorboard"}


def gather(paths: Sequence[str], host: HostRoot) -> Gathered:
    """What is at `paths`: run directories of Primus, folders of logs, files.

    Raises:
        RequestError: one is not there.
        MachineError: nothing can be read.
    """
    found = Gathered()
    for path in dict.fromkeys(map(os.path.abspath, paths)):
        if not os.path.exists(path):
            raise RequestError(f"there is no {path}", fix="name a run, a folder with logs, or log files")
        if os.path.isdir(path) and is_run(path):
            run_directory.add(found, path, host)
        elif os.path.isdir(path):
            _add_folder(found, path)
        else:
            _add_file(found, path, os.path.basename(path), os.path.dirname(path))
    if not found.sources and not found.dumps and not found.run:
        raise _nothing(found, paths, host)
    period = found.period()
    found.sources = [replace(one, period=period) if one.is_late else one for one in found.sources]
    return found


def _nothing(found: Gathered, paths: Sequence[str], host: HostRoot) -> MachineError:
    if found.skipped:
        return MachineError("nothing can be read", why="; ".join(found.skipped[:5]), fix="ask their owner, or use sudo")
    why = "no file there has the name of a log"
    above = (str(folder) for path in paths for folder in PurePath(host.cwd(), path).parents)
    if run := next(filter(is_run, above), ""):  # `RUN/hang/1`
        return MachineError("nothing can be read", why=why, fix=f"primus diagnose {shlex.quote(run)}")
    return MachineError("nothing can be read", why=why, fix="name the files themselves")


def _add_folder(found: Gathered, folder: str) -> None:
    paths = list(_walk(folder))
    numbered = _numbered(paths)
    for path in paths:
        name, shown = os.path.basename(path), os.path.relpath(path, folder)
        if name.endswith(".json"):
            _add_json(found, path, shown)
        elif names.is_dump(path) and _begins_as_pickle(path):
            _add_dump(found, path, shown)
        elif names.is_log(name) and not names.is_noise(path):
            _add_log(found, path, shown, numbered=os.path.dirname(path) in numbered)


def _walk(folder: str) -> Iterator[str]:
    count = 0
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        for name in sorted(files):
            count += 1
            if count > _MOST_FILES:
                return
            yield os.path.join(place, name)


def _numbered(paths: Iterable[str]) -> set[str]:
    """Folders in which numbers in names are ranks: there are several logs, each with another number."""
    found: dict[str, list[int]] = {}
    for path in paths:
        if names.is_log(os.path.basename(path)) and (number := names.rank_of(path, numbered=True)) is not None:
            found.setdefault(os.path.dirname(path), []).append(number)
    return {
        folder
        for folder, numbers in found.items()
        if len(set(numbers)) > 1 and max(numbers) < 4 * len(numbers) and max(Counter(numbers).values()) <= 2
    }


def _add_file(found: Gathered, path: str, shown: str, folder: str) -> None:
    if path.endswith(".json"):
        before = len(found.sources) + len(found.dumps)
        _add_json(found, path, shown)
        if len(found.sources) + len(found.dumps) > before:
            return
    elif _begins_as_pickle(path):
        _add_dump(found, path, shown)
        return
    _add_log(found, path, shown, numbered=False)
    del folder


def _begins_as_pickle(path: str) -> bool:
    try:
        with open(path, "rb", opener=regular) as file:
            return file.read(1) == b"\x80"
    except OSError:
        return False


def _add_log(found: Gathered, path: str, shown: str, *, numbered: bool) -> None:
    if not os.access(path, os.R_OK):
        found.skipped.append(f"{shown}: it cannot be read")
        return
    late = names.is_kernel(os.path.basename(path))
    rank = None if late else names.rank_of(path, numbered=numbered)
    found.sources.append(Source(path, shown, rank, names.node_of(shown), is_late=late))


def _add_json(found: Gathered, path: str, shown: str) -> None:
    try:
        if os.path.getsize(path) <= _MOST_JSON:
            rank = names.rank_of(path.replace("error.json", "stderr.log"))
            found.sources += records.of_file(path, shown, rank, names.node_of(shown))
    except (OSError, ValueError, RecursionError) as error:
        found.skipped.append(f"{shown}: {getattr(error, 'strerror', '') or 'it is not valid JSON'}")


def _add_dump(found: Gathered, path: str, shown: str) -> None:
    digits = "".join(char if char.isdecimal() else " " for char in os.path.basename(path)).split()
    try:
        dump = recorder.read(path, int(digits[-1]) if digits else -1)
    except (OSError, ValueError, RecursionError) as error:
        found.skipped.append(f"{shown}: {getattr(error, 'strerror', '') or error}")
        return
    if dump:
        found.dumps.append(dump)
