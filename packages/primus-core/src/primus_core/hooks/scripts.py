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
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from primus_core import variables
from primus_core.config import submission
from primus_core.config.system import FILE, SystemConfig
from primus_core.environment.flag_lists import FLAG_LISTS
from primus_core.environment.resolve import refused
from primus_core.plan.plan import Step, StepKind, Variable
from primus_machine.errors import Mistakes, PrimusError, RequestError, nearest, suggestion
from primus_machine.facts import Facts
from primus_machine.files import trust
from primus_machine.files.trust import Trust
from primus_machine.secrets.redaction import is_maskable, is_secret_name, is_secret_setting, looks_secret

__all__ = [
    "NOT_APPLICABLE",
    "Malformed",
    "ScriptOutput",
    "found",
    "hook_files",
    "hook_folders",
    "naming",
    "parse_line",
    "patch_files",
    "saved_as",
    "secrets_in",
    "step",
]

NOT_APPLICABLE = 2
"""The exit code by which a patch says that there is nothing to do here."""

_SUFFIXES = (".sh", ".py")
# Compiled by `re` where a script first speaks.
_ENV = r"env\.([A-Za-z_][A-Za-z0-9_]*)=(.*)"
_SKIP = "launch.skip="
_EXTRA = r"extra\.([A-Za-z0-9_][A-Za-z0-9_.-]*)=(.*)"


class ScriptOutput(NamedTuple):
    """What scripts printed, in their order: variables, words for the task, and why there is nothing to launch."""

    environment: tuple[Variable, ...] = ()
    words: tuple[str, ...] = ()
    skip: str = ""

    def and_then(self, other: ScriptOutput) -> ScriptOutput:
        """Both; for a variable that is set twice, the later value; for a list of flags, both."""
        both = enumerate((*self.environment, *other.environment))
        latest = {(v.name, number if v.name in FLAG_LISTS else 0): v for number, v in both}
        return ScriptOutput(tuple(latest.values()), self.words + other.words, self.skip or other.skip)


@contextmanager
def naming(words_of: Mapping[str, Sequence[str]]) -> Iterator[None]:
    """Attribute errors in words that scripts added to the script, not to the command line; by the step's name."""
    try:
        yield
    except PrimusError as error:
        latest = {
            f"command line: {flag} {value}": f"{step}: extra.{flag.removeprefix('--')}={value}"
            for step, words in words_of.items()
            for flag, value in zip(words[::2], words[1::2], strict=True)
        }

        def quoted(text: str) -> str:
            for typed, line in latest.items():
                text = text.replace(typed, line)
            return text

        error.retold(quoted)
        raise


class Malformed(NamedTuple):
    """A line that begins as the protocol's do, and is none of them."""

    text: str
    why: str


def parse_line(line: str, script: str) -> ScriptOutput | Malformed | None:
    """What one line of a script's stdout says; None: it is only text."""
    line = line.rstrip("\r\n")
    if re.match(r"launch\.[a-z_]+=", line):
        skip = line.removeprefix(_SKIP).strip() or "no reason given"
        return ScriptOutput(skip=skip) if line.startswith(_SKIP) else Malformed(line, f"known: {_SKIP}REASON")
    if not line.startswith(("env.", "extra.")):
        return None
    if "\0" in line:
        return Malformed(line, "neither a variable nor an argument can carry a NUL character")
    if match := re.fullmatch(_ENV, line, re.S):
        return _variable(line, match[1], match[2], script)
    if match := re.fullmatch(_EXTRA, line, re.S):
        return _argument(line, match[1], match[2])
    kind = line.partition(".")[0]
    form = {"env": "env.NAME=VALUE", "extra": "extra.name=value"}[kind]
    return Malformed(line, f"the form is {form}, without spaces in the name")


def _variable(line: str, name: str, value: str, script: str) -> ScriptOutput | Malformed:
    if why := refused(name):
        return Malformed(line, f"{name} cannot be set: {why}")
    secret = is_secret_name(name) or looks_secret(value)
    return ScriptOutput(
        (Variable(name, value, f"hook {os.path.basename(script)}", f"printed by {script}", secret=secret),)
    )


def _argument(line: str, name: str, value: str) -> ScriptOutput | Malformed:
    if is_secret_setting(name, value):
        return Malformed(
            line, "it contains a secret, and everybody on this machine can read arguments: print env.NAME=VALUE instead"
        )
    return ScriptOutput(words=(f"--{name}", value))


def secrets_in(line: str) -> tuple[str, ...]:
    """The secret that a script's line says, well-formed or not; the line, where the value would mask too much."""
    kind, _, rest = line.strip().partition(".")
    name, _, value = rest.partition("=")
    name, value = name.strip(), value.strip()
    if kind not in ("env", "extra") or not value:
        return ()
    secret = looks_secret(value) or is_secret_setting(name, value) or (kind == "env" and is_secret_name(name))
    return ((value if is_maskable(value) else line),) if secret else ()


def hook_folders(facts: Facts, system: SystemConfig, beside: str, given: Sequence[str]) -> list[str]:
    """Where hooks are looked for: beside the project's `primus.yaml`, what it names, beside the request, `--hooks`."""
    submitted = submission.of(facts.environ)

    def here(path: str) -> str:
        whole = os.path.normpath(os.path.join(facts.cwd, os.path.expanduser(path)))
        return submitted.copy(path) if submitted else whole

    project = here("hooks") if os.path.exists(here(FILE)) else ""
    request = here(os.path.join(beside, "hooks")) if beside else ""
    whole = [here(folder) for folder in given]
    if variables.IN_HOOK in facts.environ:  # it would start itself without end
        return whole
    implied, asked = ([path] if _may_hold_hooks(path, facts) else [] for path in (project, request))
    return [*implied, *system.hook_folders, *asked, *whole]


def _may_hold_hooks(folder: str, facts: Facts) -> bool:
    """Whether a folder is there, which nobody named. One that others can write to may hold none: all in it counts."""
    if not os.path.isdir(folder):
        return False
    if why := trust.of(facts.host.environ).doubt(folder):
        trust.say(folder, why, f"the hooks in {folder}")
    return not why


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
    near = suggestion(os.path.basename(path), _names_in(os.path.dirname(path)))
    return RequestError(f"--hooks: there is no folder '{path}'", fix=near or "name a folder with *.sh or *.py files")


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
        near = nearest(os.path.basename(path), _names_in(os.path.dirname(path)))
        meant = os.path.join(os.path.dirname(given), near)
        raise _no_file(given, f"did you mean '{meant}'?" if near else "check the path", meant if near else None)
    if not (path.endswith(_SUFFIXES) and os.path.isfile(path)):
        raise RequestError(f"--patch {given}: it is neither a bash nor a Python file", fix="name it *.sh or *.py")
    return path


def _no_file(given: str, fix: str, meant: str | None) -> RequestError:
    what, quoted = f"--patch: there is no file '{given}'", meant and shlex.quote(meant)
    return RequestError(what, fix=fix, kind="unknown", options=[given], meant=quoted)


def _names_in(folder: str) -> list[str]:
    return os.listdir(folder) if os.path.isdir(folder) else []


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


def saved_as(steps: Sequence[Step]) -> dict[str, Step]:
    """Where a run directory keeps the text of its scripts: `config/hooks/01-prepare.sh`, numbered in their order.

    One that bears its number already keeps its name: a replay's scripts come from such a folder.
    """
    found: dict[str, Step] = {}
    for index, script in enumerate(step for step in steps if step.script):
        folder = {"hook": "hooks", "patch": "patches"}[script.kind]
        number, name = f"{index + 1:02d}-", os.path.basename(script.script)
        found[f"config/{folder}/{number}{name.removeprefix(number)}"] = script
    return found
