"""What to type instead: the words of other tools as a first word, and a `--` that was forgotten.

Loaded only when a command line is refused.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Collection, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from primus_core.cli import former
from primus_core.installed.homes import MEANT, home_of, how_to_install
from primus_core.request.former import instead as former_word
from primus_machine.errors import MachineError, PrimusError, RequestError, nearest
from primus_machine.secrets.redaction import redact_words

__all__ = ["Hint", "Known", "hints", "instead", "retyped", "typed"]

_FILE = os.path.join(os.path.dirname(__file__), "..", "data", "hints.toml")
_FILES = (".yaml", ".yml", ".toml")
_PROGRAM = ".py"
_STAGE = "pretrain"
_ALIKE = 0.75
"""How alike a word must be to one of another tool: `torchrun` is no misspelt `rerun`."""
_VERY_ALIKE = 0.8
"""So much alike are a word of the hints and a slip of it: `login` is none of `log`."""
_SHORT = 3
_TRAINS = "`train pretrain` trains"


class Hint(NamedTuple):
    """Words that people type first, and the command for what they mean.

    In a command, `{run}` is the first name behind that word, `{names}` all of them, `{training}` the whole task.
    """

    words: tuple[str, ...]
    why: str
    bare: str
    """The command where they name nothing."""
    named: str = ""
    """The command where they name something; empty: the same."""
    file: str = ""
    """The command where they name an experiment; empty: as any other name."""
    ends: bool = False
    """The command ends something: a misspelt word is no reason to propose it."""


@cache
def hints() -> tuple[Hint, ...]:
    """Those of `data/hints.toml`."""
    with open(_FILE, "rb") as file:
        rows = tomllib.load(file)["hint"]
    return tuple(Hint(**{**row, "words": tuple(row["words"])}) for row in rows)


class Known(NamedTuple):
    """The first words that there are."""

    runtimes: Collection[str]
    tasks: Collection[str]
    commands: Collection[str]
    front: tuple[str, ...] = ()
    """The global options before them."""


def typed(words: Sequence[str]) -> str:
    """Words as one types them, without the values of secrets."""
    return shlex.join(redact_words(words))


_EXAMPLES = {"--backend": "torchtitan", "--gpu": "MI300X", "-o": "node.tar.gz", "-M": "8192"}
"""The options that a command requires, with an example of each."""
_ONLY = {"-o": "capture", "-M": "gemm"}
"""Those that are all that a command needs, and its name: a word behind that is their value."""
_ENDING = frozenset({"stop"})
"""Commands that end something: a misspelt word is no reason to propose one."""
_SWITCHES = ("--dry-run", "--debug")


def retyped(words: Sequence[str], error: PrimusError) -> str:
    """Return the fix of `error`, and with it the whole command, where that follows from its fields."""
    if error.kind == "missing":
        complete = _completed(words, error.options)
        return f"{_whole(complete)}\n{error.fix}" if complete else error.fix
    wrong = error.option
    places = [at for at, word in enumerate(words) if word.partition("=")[0] == wrong.partition("=")[0]]
    if not wrong or len(places) != 1:
        return error.fix
    before, word, after = words[: places[0]], words[places[0]], words[places[0] + 1 :]
    if error.kind == "late" and before[-1:] != [error.where] and error.where in before:
        at = before.index(error.where) + 1
        return _whole([*before[:at], wrong, *before[at:], *after])
    if wrong in _SWITCHES:
        return f"put {wrong} before the `--`\n{_whole([wrong, *before, *after])}"
    return _exchanged(before, word, after, error)


def _whole(words: Sequence[str]) -> str:
    """A command from its words; with the variables for torchrun's options among those of `direct` before it."""
    variables, rest = former.without_launcher(words)
    return f"{variables}primus {typed(rest)}"


def _completed(words: Sequence[str], missing: Sequence[str]) -> list[str]:
    """`words` with the options that were required and are missing; empty: nobody knows an example of them."""
    lacks = [names.partition("/")[0] for names in missing]
    if not all(flag in _EXAMPLES for flag in lacks):
        return []
    command = _ONLY.get(lacks[0], "")
    behind = words.index(command) + 1 if command in words else len(words)
    if value := [word for word in words[behind : behind + 1] if not word.startswith("-")]:
        return [*words[:behind], lacks[0], *value, *words[behind + 1 :]]
    return [*words, *(word for flag in lacks for word in (flag, _EXAMPLES[flag]))]


def _exchanged(before: Sequence[str], word: str, after: Sequence[str], error: PrimusError) -> str:
    """The fix, and the whole command with what is meant in the place of `word`; the fix alone where nobody knows."""
    _, equals, value = word.partition("=")
    if len(former.without_launcher(["direct", word])[1]) == 1:
        return _whole([*before, word, *after])
    if error.meant is None:
        return error.fix
    *first, last = shlex.split(error.meant) or [""]
    meant = [*first, f"{last}{equals}{value}"] if error.meant else []
    return f"{error.fix}\n{_whole([*before, *meant, *after])}"


def instead(words: Sequence[str], known: Known, refused: PrimusError) -> RequestError | None:
    """The answer to `words`, which were refused with the error `refused`; None: nobody can tell what they mean."""
    if error := _instead(list(words), known, refused):
        return error
    variables, rest = former.without_launcher(words)  # the last of them may stand where a value would
    if (error := _instead(rest, known, refused) if len(rest) < len(words) else None) and error.kind == _COMMAND:
        error.fix = f"{variables}{error.fix}"
    return error


_COMMAND = "command"
"""The kind of an error whose fix is a whole command."""


def _instead(words: list[str], known: Known, refused: PrimusError) -> RequestError | None:
    if not words or words[0].startswith("-"):
        return None
    if words[0] in known.tasks and not (home_of("commands", words[0]) or _means_runtime(words, known)):
        return RequestError(refused.what, fix=_command(["direct"], words, known), kind=_COMMAND)
    if words[0] == "container" and (typed_to := former.to_engine(words[1:])):
        what = f"'run' is the task for Python files, and '{' '.join(typed_to[:1])}' is none"
        return RequestError(what, why=former.ENGINE, fix=former.container_run(typed_to), kind=_COMMAND)
    if words[0] in known.runtimes:
        if meant := _former_segments(words, refused):
            return RequestError(refused.what, fix=meant)
        return (
            _job_script(words, refused)
            or _forgotten_dashes(words, known, refused)
            or _forgotten_task(words, known, refused)
            or _misplaced_config(words, known, refused)
            or _extra_dashes(words, known)
            or _foreign_task(words, refused)
        )
    return _unknown_command(words[0], words[1:], known)


def _former_segments(words: Sequence[str], refused: PrimusError) -> str:
    """The command line, where a segment begins as with AMD's launcher: with an option, or the words of a program."""
    if refused.kind == "option first":
        return f"did you mean: {former.as_program(words) or former.with_runtimes(words)}"
    of_program = refused.option == "--script" or refused.kind == "unknown task"
    return former.as_program(words) if of_program else ""


def _means_runtime(words: Sequence[str], known: Known) -> bool:
    """Whether `run`, a task, stands where other tools have a runtime: before an experiment, options, or a runtime."""
    after = words[1] if len(words) > 1 else "-"
    is_option = after[:1] == "-" and after not in ("-h", "--help")
    return words[0] in MEANT and (is_option or _begins_training(after) or after in {*known.runtimes, *known.tasks})


def _unknown_command(head: str, rest: Sequence[str], known: Known) -> RequestError | None:
    what = f"'{head}' is a task for Python files" if head in known.tasks else f"primus has no command '{head}'"
    home = home_of("commands", head)
    if home:
        raise MachineError(f"the command '{head}' is not installed", fix=how_to_install(home))
    if fix := former_word("primus", head):
        return RequestError(what, fix=fix)
    if meant := _as_task(what, head, rest, known):
        return meant
    near = _near({*known.runtimes, *known.tasks, *known.commands} - _ENDING, head)
    if hint := _hint(head) or (None if near else _misspelt_hint(head)):
        return RequestError(what, why=hint.why, fix=_filled(hint, rest), kind=_COMMAND)
    return _misspelt(what, near, rest, known)


def _misspelt(what: str, near: str, rest: Sequence[str], known: Known) -> RequestError | None:
    """The answer to a first word that is near to one that there is, or to none; None: it is near to a runtime."""
    if near in known.tasks:
        return RequestError(what, fix=f"did you mean: {_command(['direct'], [near, *rest], known)}")
    if near in known.commands:
        return RequestError(what, fix=f"did you mean `primus {typed([near, *rest])}`?")
    if near:
        return None
    why = f"commands: {', '.join(sorted(known.commands))}; runtimes: {', '.join(sorted(known.runtimes))}"
    return RequestError(what, why=why, fix="see `primus --help`, and `primus plugins` for what is installed")


def _near(known: Collection[str], head: str) -> str:
    """The word that `head` misspells or abbreviates; empty: there is none, or several."""
    longer = [word for word in known if len(head) >= _SHORT and word.startswith(head)]
    return longer[0] if len(longer) == 1 else nearest(head, known, _ALIKE)


def _as_task(what: str, head: str, rest: Sequence[str], known: Known) -> RequestError | None:
    """The answer to a task without its runtime, or behind the launcher of others."""
    if _begins_training(head):
        why = "a task needs a runtime"
        return RequestError(what, why=why, fix=_command(["direct"], [head, *rest], known), kind=_COMMAND)
    if "run" in known.tasks and (head in former.LAUNCHERS or head.endswith(_PROGRAM)):
        why = "the task `run` starts a Python file on every rank; GPUS_PER_NODE=N sets the number of ranks per node"
        begin = next((at for at, word in enumerate([head, *rest]) if word.endswith(_PROGRAM)), 0)
        variables = former.launcher_variables([head, *rest][:begin])
        fix = f"{variables}{_command(['direct'], _program([head, *rest]), known)}"
        return RequestError(what, why=why, fix=fix, kind="" if variables else _COMMAND)
    if MEANT.get(head) == ("container",) and rest[:1] == ["run"]:
        return RequestError(what, why=former.ENGINE, fix=former.container_run(rest[1:]), kind=_COMMAND)
    if head in ("sbatch", "submit") and any(word.endswith(former.JOB_SCRIPTS) for word in rest):
        return RequestError(what, why="Primus writes the job script", fix=former.SBATCH, kind=_COMMAND)
    if runtime := MEANT.get(head):
        why = f"the runtime for that is `{runtime[0]}`; put `--` and a task after its options"
        return RequestError(what, why=why, fix=_command(runtime, rest, known), kind=_COMMAND)
    return None


def _hint(word: str) -> Hint | None:
    return next((hint for hint in hints() if word in hint.words), None)


def _misspelt_hint(head: str) -> Hint | None:
    alike = [word for hint in hints() if not hint.ends for word in hint.words]
    slips = [word for word in alike if word[:1] == head[:1]]  # `push` is no slip of `gpus`, nor `requeue` of `queue`
    return _hint(nearest(head, slips, _VERY_ALIKE))


def _forgotten_dashes(words: Sequence[str], known: Known, refused: PrimusError) -> RequestError | None:
    """The answer to runtimes whose options a task or another runtime follows without `--`; None: none does."""
    segment = words[len(words) - words[::-1].index("--") if "--" in words else 0 :]
    complete = _dashed(_with_task(words, known) if segment and segment[0] in known.runtimes else words, known)
    missing = next((old for old, new in zip(words, complete, strict=False) if old != new and new == "--"), "")
    has_task = any(word in known.tasks and before == "--" for before, word in pairwise(words))
    if not missing or (has_task and missing not in refused.options):
        return None
    return RequestError(
        f"there is no `--` before '{missing}'",
        why="`--` separates the options of a runtime from the task",
        fix=_whole([*known.front, *_staged(complete)]),
        kind=_COMMAND,
    )


def _forgotten_task(words: Sequence[str], known: Known, refused: PrimusError) -> RequestError | None:
    """The answer to an experiment or a stage without the task `train`, and to that without its stage."""
    begin = max((index for index, word in enumerate(words) if word == "--"), default=len(words)) + 1
    task = list(words[begin:])
    if task and _begins_training(task[0]):
        what, why, task = f"'{task[0]}' is not a task", _TRAINS, _training(task)
    elif task[:1] == ["run"] and task[1:] and task[1].endswith(_FILES):
        what, why, task = (
            f"'{task[1]}' is not a Python file",
            f"`run` runs a Python file; {_TRAINS}",
            _training(task[1:]),
        )
    elif task and _begins_program(task, 0, known):
        what, why, task = f"'{task[0]}' is not a task", "`run` starts a Python file on every rank", _program(task)
    elif _staged(task) != task and ("STAGE" in refused.options or any(map(_is_file, task[1:2]))):
        what, why, task = "the task `train` needs a stage", _TRAINS, _staged(task)
    else:
        return None
    front = words[: begin - 2] if words[begin - 2 : begin] == [task[0], "--"] else words[:begin]  # `run -- x.py`
    variables = former.launcher_variables(former.launching(words[begin:]))
    fix = f"{variables}{_whole([*known.front, *front, *task])}"
    return RequestError(what, why=why, fix=fix, kind="" if variables else _COMMAND)


def _extra_dashes(words: Sequence[str], known: Known) -> RequestError | None:
    """The answer to a `--` between a task and its words; None: there is none."""
    at = next((at for at in range(2, len(words)) if [words[at - 2], words[at]] == ["--", "--"]), 0)
    if not at or words[at - 1] not in known.tasks:
        return None
    return RequestError(
        f"there is a `--` behind '{words[at - 1]}'",
        why="`--` comes before a task; the words of the task follow it",
        fix=_whole([*known.front, *words[:at], *words[at + 1 :]]),
        kind=_COMMAND,
    )


def _job_script(words: Sequence[str], refused: PrimusError) -> RequestError | None:
    """The answer to a job script of one's own among the options of `slurm`; None: there is none."""
    options = words[: words.index("--") if "--" in words else len(words)]
    if words[0] != "slurm" or not any(word.endswith(former.JOB_SCRIPTS) for word in options):
        return None
    return RequestError(refused.what, why="Primus writes the job script", fix=former.SBATCH, kind=_COMMAND)


def _foreign_task(words: Sequence[str], refused: PrimusError) -> RequestError | None:
    """The answer to a word of other tools in the place of a task: the one that it gets as a command."""
    word = refused.option
    if refused.kind != "unknown task" or not word:
        return None
    if fix := former_word("primus", word):
        return RequestError(refused.what, fix=fix)
    hint = _hint(word) or (None if refused.meant else _misspelt_hint(word))
    return RequestError(refused.what, why=hint.why, fix=_filled(hint, words[words.index(word) + 1 :])) if hint else None


def _misplaced_config(words: Sequence[str], known: Known, refused: PrimusError) -> RequestError | None:
    """The answer to `--config FILE` among the options of a runtime; None: it does not stand there."""
    at = next((at for at, word in enumerate(words[:-1]) if word == "--config"), len(words))
    begin = max((index for index, word in enumerate(words) if word == "--"), default=-1) + 1
    if at >= begin or words[begin : begin + 1] != ["train"] or not {"--config", words[at + 1]} & {*refused.options}:
        return None
    task = [*_staged([*words[begin:]]), "--config", words[at + 1]]
    return RequestError(
        "--config is in the wrong segment",
        why="the experiment is an option of the task `train`",
        fix=_whole([*known.front, *words[:at], *words[at + 2 : begin], *task]),
        kind=_COMMAND,
    )


def _filled(hint: Hint, rest: Sequence[str]) -> str:
    """The command of a hint, with the person's own words."""
    names = [word for word in rest if not word.startswith("-")]
    command = hint.named if names and hint.named else hint.bare
    if hint.file and any(word.endswith(_FILES) for word in names):
        command = hint.file
    return command.format(run=typed(names[:1]), names=typed(names), training=typed(_training(rest)))


def _command(runtime: Sequence[str], rest: Sequence[str], known: Known) -> str:
    """A whole command from a runtime and what a person typed behind its name."""
    own = rest and rest[0] in known.runtimes
    words = [*(() if own else runtime), *(rest[1:] if rest and rest[0] == "--" else rest)]
    if _task_at(words, known.tasks) == len(words):
        names_experiment = any(_begins_training(word) or word.endswith(_PROGRAM) for word in words)
        words = _with_task([*words, *(() if names_experiment else ("--config", "FILE"))], known, guess=True)
    return _whole([*known.front, *_staged(_dashed(words, known))])


def _with_task(words: Sequence[str], known: Known, *, guess: bool = False) -> list[str]:
    """`words`; where no task stands among them, the task before the experiment, stage or program that does.

    `guess`: also where that may be the value of an option.
    """
    places = [at for at in range(len(words)) if _begins_training(words[at]) or _begins_program(words, at, known)]
    certain = [at for at in places if not _may_be_value(words, at)]
    begin = next(iter([*certain, *(places if guess else ())]), len(words))
    if begin == len(words) or _task_at(words, known.tasks) < len(words):
        return list(words)
    is_program = _begins_program(words, begin, known)
    task = _program(words[begin:]) if is_program else _training(words[begin:])
    if is_program and words[:begin] == ["direct"]:  # options of torchrun there become variables
        return ["direct", *former.launching(words[begin:])[1:], "--", *task]
    return [*words[:begin], *(["--"] if [*words[begin - 1 : begin]] != ["--"] else []), *task]


def _is_file(word: str) -> bool:
    return word.endswith(_FILES)


def _begins_program(words: Sequence[str], at: int, known: Known) -> bool:
    """Whether a Python file stands there, or the launcher of others before one; without the task `run`: never."""
    launched = words[at] in former.LAUNCHERS and any(word.endswith(_PROGRAM) for word in words[at:])
    return "run" in known.tasks and (words[at].endswith(_PROGRAM) or launched)


def _program(words: Sequence[str]) -> list[str]:
    """The task `run` for what a launcher of others was to start."""
    begin = next((at for at, word in enumerate(words) if word.endswith(_PROGRAM)), len(words))
    return ["run", *(words[begin:] or ["train.py"])]


def _begins_training(word: str) -> bool:
    return word in (_STAGE, "--config") or word.endswith(_FILES)


def _training(rest: Sequence[str]) -> list[str]:
    """The words of the task `train` from a stage, `--config FILE` or a file, whichever they begin with."""
    first = rest[0] if rest else ""
    if first.endswith(_FILES):
        return ["train", _STAGE, "--config", *rest]
    return ["train", _STAGE, *(rest[1:] if first == _STAGE else rest or ("--config", "FILE"))]


def _staged(words: list[str]) -> list[str]:
    """`words`; behind the task `train`, its stage, where none stands there."""
    at = next((at for at, word in enumerate(words, 1) if word == "train" and words[: at - 1][-1:] in ([], ["--"])), 0)
    if not at or (at < len(words) and not words[at].startswith("-") and not words[at].endswith(_FILES)):
        return words
    return [*words[:at], *_training(words[at:] if at < len(words) else [_STAGE])[1:]]


def _dashed(words: Sequence[str], known: Known) -> list[str]:
    """`words`, which begin with a runtime, with a `--` before each further runtime and before the task."""
    task = _task_at(words, known.tasks)
    found: list[str] = []
    for index, word in enumerate(words):
        begins = index == task or (index < task and word in known.runtimes and not _may_be_value(words, index))
        if index and begins and words[index - 1] != "--":
            found.append("--")
        found.append(word)
    return found


def _task_at(words: Sequence[str], tasks: Collection[str]) -> int:
    """Where the task stands: behind a `--`, or else where it is no value of an option, or else anywhere."""
    places = [index for index, word in enumerate(words) if word in tasks]
    behind = [index for index in places if index and words[index - 1] == "--"]
    certain = [index for index in places if not _may_be_value(words, index)]
    return next(iter([*behind, *certain, *places]), len(words))


def _may_be_value(words: Sequence[str], index: int) -> bool:
    before = words[index - 1] if index else ""
    is_whole = before == "--" or "=" in before or re.fullmatch(r"-[A-Za-z][0-9]+", before)  # `-N2`
    return before.startswith("-") and not is_whole
