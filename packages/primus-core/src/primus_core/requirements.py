"""Whether what a plan requires is here, as the run would find it: with its own PATH and PYTHONPATH. Imports nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping

from primus_core.plan.plan import Plan, Requirement
from primus_machine.errors import MachineError, Mistakes
from primus_machine.host import HostRoot
from primus_machine.system_info import memory_bytes

__all__ = ["absent_files", "check", "check_plan", "is_here", "missing"]

_LACKS = {
    "module": "Python module '{}' not found",
    "command": "command '{}' not found",
    "file": "file '{}' not found",
    "folder": "folder '{}' is not writable",
    "login": "{} is enabled, but no login for it was found",
    "gpu": "no GPU was found on this machine",
    "memory": "this machine has less than {} of memory",
}
_OF_LAUNCH = ("module", "command", "gpu", "memory")
_GPU_FILES = ("/dev/kfd", "/dev/nvidiactl", "/dev/dxg")
"""No program reaches a GPU of AMD or NVIDIA without one of them, whatever the rest of the system shows of it."""


def check(requires: Iterable[Requirement], environ: Mapping[str, str]) -> None:
    """Refuse a run that misses one of them.

    Raises:
        MachineError: with what a person can do about it.
    """
    mistakes = Mistakes()
    mistakes.add(*missing(requires, environ))
    mistakes.refuse()


def absent_files(plan: Plan) -> list[MachineError]:
    """The files and folders of a plan for another machine that are not here."""
    return missing((one for one in plan.requires if one.kind in ("file", "folder")), {})


def check_plan(plan: Plan, environ: Mapping[str, str], *, installed: bool) -> None:
    """Refuse a plan for this machine that misses a file, a folder to write in or a login. `installed`: or, where it has
    all these, a program or module, which a dry run only lists: it is often made elsewhere. A hook may say the login.

    Raises:
        MachineError: with what a person can do about it.
    """
    mistakes = Mistakes()
    kinds = ("file", "folder", *(() if any(step.script for step in plan.steps) else ("login",)))
    mistakes.add(*missing((one for one in plan.requires if one.kind in kinds), plan.environ(environ)))
    if not _can_be_written_in(plan.place.directory):
        from primus_core.runs.record_writer import unwritable

        mistakes.add(unwritable(plan.place.directory, _why_not(plan.place.directory)))
    mistakes.refuse()
    if installed:
        check((one for one in plan.requires if one.kind in _OF_LAUNCH), plan.environ(environ))


def _why_not(folder: str) -> OSError:
    """As the system says it."""
    around = _nearest(folder)
    number = errno.EACCES if os.path.isdir(around) else errno.ENOTDIR
    return OSError(number, os.strerror(number), around)


def missing(requires: Iterable[Requirement], environ: Mapping[str, str]) -> list[MachineError]:
    """Those that are not here, as errors: one for all modules that one command installs."""
    lacking: dict[tuple[str, str, str], list[str]] = {}
    for one in (one for one in requires if not is_here(one, environ)):
        lacking.setdefault((one.kind, one.fix, "" if one.kind == "module" else one.name), []).append(one.name)
    return [MachineError(_LACKS[kind].format("', '".join(names)), fix=fix) for (kind, fix, _), names in lacking.items()]


def is_here(needed: Requirement, environ: Mapping[str, str]) -> bool:
    """Whether a run with `environ` finds it."""
    return _IS_HERE[needed.kind](needed.name, environ)


def _is_there(path: str) -> bool:
    from glob import glob

    return os.path.exists(path) or bool(glob(path, recursive=True))


def _is_command(name: str, environ: Mapping[str, str]) -> bool:
    import shutil

    return shutil.which(name, path=environ.get("PATH")) is not None


def _is_module(name: str, environ: Mapping[str, str]) -> bool:
    below = [*filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))]  # in a saved run's, which this one lacks
    return _is_importable(name) or _is_in(name, below)


def _is_logged_in(environ: Mapping[str, str]) -> bool:
    """To Weights & Biases: by a key, by what `wandb login` wrote, or because it shall stay offline."""
    if environ.get("WANDB_API_KEY") or environ.get("WANDB_MODE", "online") != "online":
        return True
    host = environ.get("WANDB_BASE_URL", "https://api.wandb.ai").rpartition("//")[2].split("/")[0]
    try:
        with open(environ.get("NETRC") or os.path.join(environ.get("HOME", ""), ".netrc"), encoding="utf-8") as file:
            return host in file.read()
    except (OSError, UnicodeDecodeError):
        return False


def _can_be_written_in(folder: str) -> bool:
    folder = _nearest(folder)
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def _nearest(folder: str) -> str:
    """The innermost part of a path that is there."""
    folder = os.path.abspath(folder)
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    return folder


def _is_importable(module: str) -> bool:
    """Whether this process could import it. A package above it is not imported to know."""
    from importlib.util import find_spec

    top, *below = module.split(".")
    try:
        spec = find_spec(top)
    except ValueError:  # no name of a module, or one that is no package's
        return False
    return spec is not None and (not below or _is_in(module, list(spec.submodule_search_locations or ()), top))


def _is_in(module: str, folders: list[str], package: str = "") -> bool:
    """Whether a module lies in `folders`: those of `package`, if one is named."""
    from importlib.machinery import PathFinder

    path, whole = folders, package
    for part in module.removeprefix(f"{package}.").split("."):
        whole = f"{whole}.{part}" if whole else part
        spec = PathFinder.find_spec(whole, path) if path else None
        if spec is None:
            return False
        path = list(spec.submodule_search_locations or ())
    return True


_IS_HERE: dict[str, Callable[[str, Mapping[str, str]], bool]] = {
    "module": _is_module,
    "command": _is_command,
    "file": lambda path, _: _is_there(path),
    "folder": lambda folder, _: _can_be_written_in(folder),
    "login": lambda _, environ: _is_logged_in(environ),
    "gpu": lambda *_: any(map(os.path.exists, _GPU_FILES)),
    "memory": lambda least, _: not 0 < memory_bytes(HostRoot()) < float(least.split()[0]) * 1e9,
}
"""By the kind of a requirement: whether what it names is here, for an environment."""
