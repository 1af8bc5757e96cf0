"""What to type instead: the words of other tools as a first word, and a `--` that was forgotten.

Loaded only when a command line is refused.
"""

from __future__ import annotations

import os
import shlex
import tomllib
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from primus_core.cli import former, proposed
from primus_core.cli.former import MODULE, is_program, typed
from primus_core.cli.segments import (
    Known,
    as_run_task,
    as_training,
    begins_program,
    begins_training,
    find_task,
    is_experiment,
    near_word,
    with_dashes,
    with_image,
    with_stage,
    with_task,
    with_values,
)
from primus_core.installed.homes import home_of, how_to_install, meant, names
from primus_core.request.former import answer as former_answer
from primus_core.request.former import word_set
from primus_machine.errors import MachineError, PrimusError, RequestError, nearest

__all__ = ["Hint", "Known", "hints", "instead", "retyped"]

_FILE = os.path.join(os.path.dirname(__file__), "..", "data", "hints.toml")
_VERY_ALIKE = 0.8
"""So much alike are a word of the hints and a slip of it: `login` is none of `log`."""
_TRAINS, _RUNS = "`train pretrain` trains", "`run` starts a Python file on every rank"


class Hint(NamedTuple):
    """Words that people type first, and the command for what they mean: a row of `data/hints.toml`."""

    words: tuple[str, ...]
    why: str
    bare: str
    named: str = ""
    file: str = ""
    ends: bool = False
    """The command ends something: a misspelt word is no reason to propose it."""


@cache
def hints() -> tuple[Hint, ...]:
    """Those of `data/hints.toml`."""
    with open(_FILE, "rb") as file:
        rows = tomllib.load(file)["hint"]
    return tuple(Hint(**{**row, "words": tuple(row["words"])}) for row in rows)


def retyped(words: Sequence[str], error: PrimusError, errors: Sequence[PrimusError] = ()) -> str:
    """Return the fix of `error`, and with it the whole command, where that follows from its fields. `errors`: all."""
    if {*words[1:2]} & former.RUNTIMES and words[0] in names("tasks") & names("commands"):  # `bench slurm -- gemm`
        return _whole(proposed.runtime_first(words))
    if proposed.moved(words, [error]):
        return _whole(proposed.moved(words, errors or [error]))
    wrong = error.option
    moved = "" if len(errors) > 1 or not wrong else _moved(words, error)
    if len(errors) > 1 or moved or not wrong:
        return moved or error.fix
    places = [at for at, word in enumerate(words) if word.partition("=")[0] == wrong.partition("=")[0]]
    if len(places) != 1:
        return error.fix
    before, word, after = words[: places[0]], words[places[0]], words[places[0] + 1 :]
    if error.kind == "late" and before[-1:] != [error.where] and error.where in before:
        at = before.index(error.where) + 1
        return _whole([*before[:at], wrong, *before[at:], *after])
    return _exchanged(before, word, after, error)


def _moved(words: Sequence[str], error: PrimusError) -> str:
    """The whole command, where the words are right but for their order or for what joins them; empty: they are not."""
    if error.kind == "missing" and (complete := proposed.completed(words, error)):
        return _whole(complete) + ("" if error.fix.startswith("primus ") else f"\n{error.fix}")  # with other names
    if error.kind == "order" and former.program_at(error.options) < len(error.options):
        variables, [_, *program] = former.without_launcher(["direct", *error.options])
        at, front = former.program_at(program), words[: -len(error.options)]
        for_runtime = [*front[:-2], *program[:at], *front[-2:], *program[at:]]  # `direct --env A=1 -- run FILE`
        fits = not proposed.refusal(for_runtime)
        return f"{variables}{_whole(for_runtime if fits else [*front, *program[at:], *program[:at]])}"
    if error.kind == "nesting":  # `container -- slurm srun -- run FILE`
        outer = words.index(error.where)
        inner = words.index(error.option, outer + 1)
        end = inner + [*words[inner:], "--"].index("--")
        around = [*words[inner:end], "--"] if error.where != error.option else ()  # else the inner one is enough
        return _whole([*words[:outer], *around, *words[outer : inner - 1], *words[end:]])
    if error.kind == "positional":
        values = [value for word in words for value in ([word.partition("=")[2]] if word in error.options else [word])]
        return f"{error.fix}\n{_whole([*filter(None, values)])}"
    if pairs := with_values(words, error.options):
        whole = proposed.moved(pairs, [RequestError("", options=["--env"])]) or pairs
        return f"a variable and its value are one word\n{_whole(whole)}"
    return ""


def _whole(words: Sequence[str]) -> str:
    """A command from its words; with the variables for torchrun's options among those of `direct` before it."""
    variables, rest = former.without_launcher(words)
    return f"{variables}primus {typed(rest)}"


def _exchanged(before: Sequence[str], word: str, after: Sequence[str], error: PrimusError) -> str:
    """The fix, and the whole command with what is meant in the place of `word`; the fix alone where nobody knows."""
    _, equals, value = word.partition("=")
    if len(former.without_launcher([*before, word])[1]) == len(former.without_launcher(before)[1]):
        return _whole([*before, word, *after])
    if error.meant is None or (error.kind == "misplaced" and "--" not in before):  # a command without segments
        return error.fix
    *first, last = shlex.split(error.meant) or [""]
    if first[:1] == ["primus"]:  # another command
        before, first = [], first[1:]
    meant = [*first, f"{last}{equals}{value}"] if error.meant else []
    if before[:1] == ["replay"] and first:  # words of a runtime come last
        end = 0 if equals or "".join(after[:1]).startswith("-") else 1
        meant, after = [*(one for one in after[end:] if one != first[0]), *meant, *after[:end]], []
    whole = [*before, *meant, *after]
    further = proposed.refusal(whole)
    if not (meant or equals) and [one for one in after[:1] if one.isdigit() or (further and one == further.option)]:
        whole, further = [*before, *after[1:]], None
    return f"{error.fix}\n{_whole((further and proposed.moved(whole, [further])) or whole)}"


def instead(words: Sequence[str], known: Known, refused: PrimusError) -> RequestError | None:
    """The answer to `words`, which were refused with the error `refused`; None: nobody can tell what they mean."""
    words = former.with_nodes(words)
    own = [a for a, b in pairwise([*words, ""]) if a not in ("primus", "primus-cli") or b not in former.RUNTIMES]
    if own != [*words] and (words[0] not in own or "slurm" in (words[0], *meant(words[0]))):  # AMD's, or typed twice
        whole = RequestError(refused.what, fix=_whole([*known.front, *own]), kind=_COMMAND)
        return (_instead(own, known, refused) if proposed.refusal(own) else None) or whole
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
    words = words[1:] if words[0] == "run" and {*words[1:2]} & former.LAUNCHERS else words
    if words[0] in known.tasks and not (home_of("commands", words[0]) or _means_runtime(words, known)):
        is_of_runs = words[0] == "run" and {*words[1:2]} & word_set("of_runs")
        fix = f"primus runs {typed(words[1:])}" if is_of_runs else _command(["direct"], words, known)
        fix = (
            _whole([*known.front, *proposed.runtime_first(words)]) if words[1:2] and words[1] in known.runtimes else fix
        )
        return RequestError(refused.what, fix=fix, kind=_COMMAND)
    is_engines = "container" in (words[0], *meant(words[0])) and (words[0] == "container" or not former.starts(words))
    if is_engines and (error := _to_engine(words, known)):
        return error
    if words[0] in known.runtimes:
        if segments := _former_segments(words, known, refused):
            return RequestError(refused.what, fix=segments)
        return (
            _job_script(words, refused)
            or _misplaced_dashes(words, known, refused)
            or _forgotten_dashes(words, known, refused)
            or _forgotten_task(words, known, refused)
            or _foreign_task(words, known, refused)
        )
    return _unknown_command(words[0], words[1:], known)


def _to_engine(words: Sequence[str], known: Known) -> RequestError | None:
    """The answer to words that the engine of containers would take; None: they are none."""
    fix, own = former_answer("container", "".join(words[1:2])).fix, "it is the engine's own command, without `primus`"
    if words[0] != "container" and fix.startswith(own[: len(fix)]) and words[1:2] and not words[1].startswith("-"):
        fix = f"{own}: {typed(words)}"
    if fix and not (words[0] != "container" and {*words[1:2]} & {*known.tasks, *known.runtimes}):
        return RequestError(f"`{typed(words[:2])}` starts no task", fix=fix)
    typed_to = former.to_engine(words[1:]) if words[0] == "container" else ()
    is_ours = words[0] == "container" and not typed_to and "--image" not in words
    what = "container: the image is an option"
    if is_ours and (whole := with_image(with_task(words, known), known)):
        variables = former.launcher_variables(former.launched(words))
        kind = "" if variables else _COMMAND
        return RequestError(what, fix=f"{variables}{_whole([*known.front, *whole])}", kind=kind)
    if is_ours and "--" not in words and former.names_image(words[1:]):  # `container --rm -it IMAGE bash`
        typed_to = words[1:]
    if not typed_to:
        return None
    return RequestError(what, why=former.ENGINE, fix=former.container_run(typed_to), kind=_COMMAND)


def _former_segments(words: Sequence[str], known: Known, refused: PrimusError) -> str:
    """The command line, where a segment begins as with AMD's launcher: with an option, or the words of a program."""
    if refused.kind == "option first":
        whole = former.with_runtimes(words, lambda rest: find_task(rest, known.tasks))
        meant = former.as_program(words) or (_whole([*known.front, *whole]) if whole else "")
        return f"did you mean: {meant}" if meant else ""
    return former.as_program(words) if refused.option == "--script" or refused.kind == "unknown task" else ""


def _means_runtime(words: Sequence[str], known: Known) -> bool:
    """Whether `run`, a task, stands where other tools have a runtime: before an experiment, options, or a runtime."""
    after = words[1] if len(words) > 1 else "-"
    is_option = after[:1] == "-" and after not in ("-h", "--help", *MODULE)
    return bool(meant(words[0])) and (is_option or begins_training(after) or after in {*known.runtimes, *known.tasks})


def _unknown_command(head: str, rest: Sequence[str], known: Known) -> RequestError | None:
    what = f"'{head}' is a task for Python files" if head in known.tasks else f"primus has no command '{head}'"
    if home := home_of("commands", head):
        raise MachineError(f"the command '{head}' is not installed", fix=how_to_install(home))
    if head in known.tasks and not rest:
        fix = f"primus direct -- {head} train.py\nto train: primus direct -- train pretrain --config FILE"
        return RequestError(f"{what}, and none is named", fix=fix)
    found = former_answer("primus", " ".join([head, *rest[:1]]))  # `accelerate config`
    if (found := found if found.fix else former_answer("primus", head)).meant:
        return RequestError(what, fix=_whole([*known.front, *shlex.split(found.meant), *rest]), kind=_COMMAND)
    if found.fix:
        return RequestError(what, fix=found.fix)
    if answer := _as_task(what, head, rest, known):
        return answer
    near = near_word({*known.runtimes, *known.tasks, *known.commands} - word_set("ending"), head)
    hint = _hint(head) or (None if near else _misspelt_hint(head))
    if rest and rest[0] in known.commands and not proposed.refusal([rest[0], head, *rest[1:]]):  # `show config FILE`
        near, rest, hint = rest[0], [head, *rest[1:]], None
    if hint:
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


def _as_task(what: str, head: str, rest: Sequence[str], known: Known) -> RequestError | None:
    """The answer to a task without its runtime, or behind the launcher of others."""
    if begins_training(head):
        fix = _command(["direct"], [head, *rest], known)
        return RequestError(what, why="a task needs a runtime", fix=fix, kind=_COMMAND)
    if "run" in known.tasks and (head in former.LAUNCHERS or is_program(head)):
        why = "the task `run` starts a Python file on every rank; GPUS_PER_NODE=N sets the number of ranks per node"
        launching = former.launching([head, *rest])
        options, lost = former.of_direct(launching[1:])
        why += f"; left out: {', '.join(lost)}" if lost else ""
        variables = former.launcher_variables(launching)
        fix = f"{variables}{_command(['direct', *options], as_run_task([head, *rest]), known)}"
        return RequestError(what, why=why, fix=fix, kind="" if variables else _COMMAND)
    runtime = meant(head)
    if runtime[:1] == ("container",) and former.starts([head, *rest]):
        return RequestError(what, why=former.ENGINE, fix=former.container_run(rest[1:], runtime[1:]), kind=_COMMAND)
    if head in ("sbatch", "submit") and any(
        word.endswith(former.JOB_SCRIPTS) or word.startswith("--wrap") for word in rest
    ):
        return RequestError(what, why="Primus writes the job script", fix=former.sbatch(rest), kind=_COMMAND)
    if runtime:
        why = f"the runtime for that is `{runtime[0]}`; put `--` and a task after its options"
        variables, rest = former.without_shape(rest) if runtime[0] == "slurm" else ("", rest)
        variables = former.launcher_variables(former.launched(rest), runtime[0]) or variables
        fix = f"{variables}{_command(runtime, rest, known)}"
        return RequestError(what, why=why, fix=fix, kind="" if variables else _COMMAND)
    return None


def _hint(word: str) -> Hint | None:
    return next((hint for hint in hints() if word in hint.words), None)


def _misspelt_hint(head: str) -> Hint | None:  # `push` is no slip of `gpus`, nor `requeue` of `queue`
    slips = [word for hint in hints() if not hint.ends for word in hint.words if word[:1] == head[:1]]
    return None if "." in head else _hint(nearest(head, slips, _VERY_ALIKE))


def _forgotten_dashes(words: Sequence[str], known: Known, refused: PrimusError) -> RequestError | None:
    """The answer to runtimes whose options a task or another runtime follows without `--`; None: none does."""
    segment = words[len(words) - words[::-1].index("--") if "--" in words else 0 :]
    complete = with_dashes(with_task(words, known) if segment and segment[0] in known.runtimes else words, known)
    missing = next((old for old, new in zip(words, complete, strict=False) if old != new and new == "--"), "")
    has_task = any(word in known.tasks and before == "--" for before, word in pairwise(words))
    behind = words[words.index(missing) :] if missing else ()  # `direct slurm srun -N 2 -- run FILE`
    if not missing or (has_task and not {missing, *(behind if missing in known.runtimes else ())} & {*refused.options}):
        return None
    why, fix = "`--` separates the options of a runtime from the task", _whole([*known.front, *with_stage(complete)])
    fix = former.launcher_variables(former.launched(words), words[0]) * (words[0] != "direct") + fix
    return RequestError(f"there is no `--` before '{missing}'", why=why, fix=fix, kind=_COMMAND)


def _forgotten_task(words: Sequence[str], known: Known, refused: PrimusError) -> RequestError | None:
    """The answer to an experiment or a stage without the task `train`, and to that without its stage."""
    begin = max((index for index, word in enumerate(words) if word == "--"), default=len(words)) + 1
    task = list(words[begin:])
    if task and begins_training(task[0]):
        what, why, task = f"'{task[0]}' is not a task", _TRAINS, as_training(task)
    elif task[:1] == ["run"] and task[1:] and is_experiment(task[1]):
        what, why = f"'{task[1]}' is not a Python file", f"`run` runs a Python file; {_TRAINS}"
        task = as_training(task[1:])
    elif task and begins_program(task, at := int(task[0] == "run" and bool({*task[1:2]} & former.LAUNCHERS)), known):
        what, why = f"'{task[at]}' is not a {'Python file' if at else 'task'}", _RUNS
        task = as_run_task(task)
    elif with_stage(task) != task and ("STAGE" in refused.options or any(map(is_experiment, task[1:2]))):
        what, why, task = "the task `train` needs a stage", _TRAINS, with_stage(task)
    else:
        return None
    front = words[: begin - 2] if words[begin - 2 : begin] == [task[0], "--"] else words[:begin]  # `run -- x.py`
    launching = former.launching(words[begin:])
    options, lost = former.of_direct(launching[1:])
    why += f"; left out: {', '.join(lost)}" if lost else ""
    variables = former.launcher_variables(launching, words[0])
    fix = f"{variables}{_whole([*known.front, *front[:-1], *options, *front[-1:], *task])}"
    return RequestError(what, why=why, fix=fix, kind="" if variables else _COMMAND)


def _misplaced_dashes(words: Sequence[str], known: Known, refused: PrimusError) -> RequestError | None:
    """The answer to a `--` in another place than before a task, or to another dash for it; None: they are not wrong."""
    end = words.index("run") if "run" in words else len(words)  # a program may have its own
    own = words[end + 1 + (words[end + 1 : end + 2] == ["--"]) :]  # of `direct run -- FILE`
    bare = [*(word for word in words[:end] if word not in ("--", "-", "–", "—")), *words[end : end + 1], *own]
    dashed = with_dashes(bare, known)
    dashed = [a for a, b in pairwise([*dashed, ""]) if (a, b) != ("pretrain", "--")]  # `pretrain train`
    whole = [*known.front, *with_stage(dashed)]
    further = proposed.refusal(whole)
    if [*words] in (bare, dashed) or "--" not in dashed or (further and further.kind != "missing"):
        return None
    return RequestError(refused.what, why="`--` comes before a task and nowhere else", fix=_whole(whole), kind=_COMMAND)


def _job_script(words: Sequence[str], refused: PrimusError) -> RequestError | None:
    """The answer to a job script of one's own among the options of `slurm`; None: there is none."""
    end = words.index("--") + 2 if "--" in words else len(words)
    wraps = "--" not in words and any(word.startswith("--wrap") for word in words)
    if words[0] != "slurm" or not (wraps or any(word.endswith(former.JOB_SCRIPTS) for word in words[:end])):
        return None
    return RequestError(refused.what, why="Primus writes the job script", fix=former.sbatch(words[1:]), kind=_COMMAND)


def _foreign_task(words: Sequence[str], known: Known, refused: PrimusError) -> RequestError | None:
    """The answer to a word of other tools in the place of a task: the one that it gets as a command."""
    word = refused.option if refused.kind == "unknown task" else ""
    if words[0] == "slurm" and not word:  # `slurm cancel 12`
        word = "".join(words[1:2])
    if not word or word.startswith("-"):
        return None
    found, at = former_answer("primus", word), words.index(word)
    if word in known.commands and word not in word_set("ending"):
        return RequestError(refused.what, fix=_whole([*known.front, *words[at:]]), kind=_COMMAND)
    if found.meant:
        front, dashes, task = found.meant.rpartition("direct -- ")
        meant = [*(words[:at] if dashes else ()), *shlex.split(front + task), *words[at + 1 :]]
        return RequestError(refused.what, fix=_whole(meant), kind=_COMMAND)
    if found.fix:
        fix = found.fix.replace("primus direct --", _whole(words[:at])) if words[at - 1] == "--" else found.fix
        return RequestError(refused.what, fix=fix)
    hint = _hint(word) or (None if refused.meant else _misspelt_hint(word))
    return RequestError(refused.what, why=hint.why, fix=_filled(hint, words[words.index(word) + 1 :])) if hint else None


def _filled(hint: Hint, rest: Sequence[str]) -> str:
    """The command of a hint, with the person's own words."""
    own = [word for before, word in pairwise(["", *rest]) if before not in word_set("valued")]
    names = [word for word in own if not word.startswith("-") and word not in word_set("verbs")]
    command = (any(map(is_experiment, names)) and hint.file) or (names and hint.named) or hint.bare
    command = command.format(run=typed(names[:1]), names=typed(names), training=typed(as_training(rest)))
    at = next((at for at, word in enumerate(rest) if word.startswith("-")), len(rest))
    longer = [*shlex.split(command)[1:], *rest[at:]]
    is_right = rest[at:] and rest[at] not in command and "\n" not in command and not proposed.refusal(longer)
    return f"primus {typed(longer)}" if is_right else command


def _command(runtime: Sequence[str], rest: Sequence[str], known: Known) -> str:
    """A whole command from a runtime and what a person typed behind its name."""
    own = rest and rest[0] in known.runtimes
    words = [*(() if own else runtime), *(rest[1:] if rest and rest[0] == "--" else rest)]
    if find_task(words, known.tasks) == len(words):
        names_experiment = any(begins_training(word) or is_program(word) or word in MODULE for word in words)
        words = with_task([*words, *(() if names_experiment else ("--config", "FILE"))], known, guess=True)
    return _whole([*known.front, *with_stage(with_dashes(words, known))])
