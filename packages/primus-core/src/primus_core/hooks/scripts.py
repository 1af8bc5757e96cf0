"""The person's own scripts around a launch, hooks and patches, and the lines by which they speak.

    hooks/NN_*.{sh,py}, hooks/<task>/NN_*, hooks/<task>/<action>/NN_*        in this order, each folder by bytes
    --patch FILE                                                             after the hooks, as given

Each runs once per node before the ranks start. On stdout it may say `env.NAME=VALUE` (a variable for all that
follows), `extra.name=value` (adds `--name value` to the task) and `launch.skip=REASON` (there is nothing to launch, and
that is a good end). Exit 0 continues; a patch may exit 2: "not applicable"; anything else stops the launch.
"""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence

from primus_core.config import submission
from primus_core.plan.plan import Step, StepKind
from primus_machine.errors import Mistakes, RequestError
from primus_machine.files import trust
from primus_machine.files.nearby import nearest_beside
from primus_machine.files.trust import Trust

__all__ = ["NOT_APPLICABLE", "found", "hook_files", "patch_files", "step"]

NOT_APPLICABLE = 2
"""The exit code by which a patch says that there is nothing to do here."""

_SUFFIXES = (".sh", ".py")


def hook_files(folders: Iterable[str], task: Sequence[str], believed: Trust) -> list[str]:
    """The hooks for `task` (its name and action) in `folders`: general ones first, in each folder by bytes.

    Raises:
        RequestError: one of the folders is none, a script in it is no file, or either is not `believed`.
    """
    found: dict[str, str] = {}  # by real path: a folder may be reached in two ways
    named = list(itertools.takewhile(_is_folder_name, task))
    mistakes = Mistakes()
    for folder in folders:
        with mistakes:
            for path in _hooks_in(folder, named, believed):
                found.setdefault(os.path.realpath(path), path)
    mistakes.refuse()
    return list(found.values())


def _hooks_in(folder: str, task: Sequence[str], believed: Trust) -> Iterator[str]:
    if not os.path.isdir(folder):
        raise _no_folder(folder)
    for depth in range(len(task) + 1):
        place = os.path.join(folder, *task[:depth])
        believed.require(place, "the folder of hooks")
        for path in _scripts_in(place):
            believed.require(path, "the hook")
            yield path


def _no_folder(path: str) -> RequestError:
    if os.path.exists(path):
        return RequestError(
            f"'{path}' is not a hooks folder",
            fix="name the folder of the script, or use --patch FILE for a single script",
        )
    near = nearest_beside(path, path)
    fix = f"did you mean '{near}'?" if near else "name a folder with *.sh or *.py files"
    return RequestError(f"--hooks: there is no folder '{path}'", fix=fix)


def _is_folder_name(word: str) -> bool:
    """A task's word may be anything, `/tmp` too; a folder of hooks is only looked for below the others."""
    return "/" not in word and word not in ("", ".", "..")


def _scripts_in(folder: str) -> list[str]:
    try:
        names = sorted(os.listdir(folder), key=os.fsencode)
    except OSError:
        return []
    whole = (os.path.join(folder, name) for name in names if name.endswith(_SUFFIXES))
    paths = [path for path in whole if not os.path.isdir(path)]
    for path in paths:
        if not os.path.isfile(path):
            why = (
                f"it is a link to {os.readlink(path)}, which does not exist"
                if os.path.islink(path)
                else "it is not a file"
            )
            raise RequestError(f"the hook '{path}' cannot be run", why=why, fix="correct it, or remove it")
    return paths


def patch_files(paths: Sequence[str], cwd: str, believed: Trust) -> list[str]:
    """The patches as whole paths.

    Raises:
        RequestError: one is missing, it is neither a bash nor a Python file by its suffix, or not `believed`.
    """
    found, mistakes = [], Mistakes()
    for given in paths:
        with mistakes:
            path = _patch_file(given, cwd)
            if why := believed.doubt_place(path):
                raise trust.refused(path, why, "the patch")
            found.append(path)
    mistakes.refuse()
    return found


def _patch_file(given: str, cwd: str) -> str:
    path = os.path.normpath(os.path.join(cwd, os.path.expanduser(given)))
    if not os.path.exists(path):
        near = nearest_beside(path, given)
        raise _no_file(given, f"did you mean '{near}'?" if near else "check the path", near or None)
    if not (path.endswith(_SUFFIXES) and os.path.isfile(path)):
        raise RequestError(f"--patch {given}: it is neither a bash nor a Python file", fix="name it *.sh or *.py")
    return path


def _no_file(given: str, fix: str, meant: str | None) -> RequestError:
    what, quoted = f"--patch: there is no file '{given}'", meant and shlex.quote(meant)
    return RequestError(what, fix=fix, kind="unknown", options=[given], meant=quoted)


def found(
    folders: Iterable[str], patches: Sequence[str], task: Sequence[str], cwd: str, believed: Trust
) -> list[tuple[StepKind, str]]:
    """Hooks, then patches.

    Raises:
        RequestError: what is wrong with any of them.
    """
    mistakes = Mistakes()
    scripts: list[tuple[StepKind, str]] = []
    with mistakes:
        scripts += [("hook", path) for path in hook_files(folders, task, believed)]
    with mistakes:
        scripts += [("patch", path) for path in patch_files(patches, cwd, believed)]
    mistakes.refuse()
    return scripts


def step(
    kind: StepKind, path: str, words: Sequence[str], *, python: str, cwd: str, timeout_s: float, alone: bool = False
) -> Step:
    """The step that runs a script, with the task's words as its arguments. `alone`: without the modules beside it."""
    command = (python, "-u", *(["-P"] if alone else [])) if path.endswith(".py") else ("bash",)
    name = f"{kind} {os.path.relpath(submission.original(path), cwd)}"
    return Step(name, (*command, path, *words), cwd, kind=kind, script=path, timeout_s=timeout_s)
