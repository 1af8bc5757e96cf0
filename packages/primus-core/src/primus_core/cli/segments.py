"""Where a task, a stage and a `--` belong among the words of a command line, if a person forgot them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from primus_core.cli import former
from primus_core.cli.former import EXPERIMENTS
from primus_core.request.former import word_set
from primus_machine.errors import nearest

__all__ = [
    "Known",
    "as_run_task",
    "as_training",
    "begins_program",
    "begins_training",
    "find_task",
    "is_experiment",
    "may_be_value",
    "near_word",
    "with_dashes",
    "with_image",
    "with_stage",
    "with_task",
    "with_values",
]

_STAGE = "pretrain"
_ALIKE = 0.75
"""How alike a word must be to one of another tool: `torchrun` is no misspelt `rerun`."""
_SWITCHES = {"--dry-run", "--debug", *word_set("of_docker")}


class Known(NamedTuple):
    """The first words that there are."""

    runtimes: Collection[str]
    tasks: Collection[str]
    commands: Collection[str]
    front: tuple[str, ...] = ()
    """The global options before them."""


def with_task(words: Sequence[str], known: Known, *, guess: bool = False) -> list[str]:
    """`words`; where no task stands among them, the task before the experiment, stage or program that does.

    `guess`: also where that may be the value of an option.
    """
    places = [at for at in range(len(words)) if begins_training(words[at]) or begins_program(words, at, known)]
    begin = next(iter([*(at for at in places if not may_be_value(words, at)), *(places if guess else ())]), len(words))
    if begin == len(words) or find_task(words, known.tasks) < len(words):
        return list(words)
    is_program = begins_program(words, begin, known)
    task = as_run_task(words[begin:]) if is_program else as_training(words[begin:])
    if is_program and words[:begin] == ["direct"]:  # options of torchrun there become variables
        return ["direct", *former.launching(words[begin:])[1:], "--", *task]
    return [*words[:begin], *(["--"] if [*words[begin - 1 : begin]] != ["--"] else []), *task]


def is_experiment(word: str) -> bool:
    """Whether a word names an experiment's file."""
    return word.endswith(EXPERIMENTS)


def begins_program(words: Sequence[str], at: int, known: Known) -> bool:
    """Whether a Python file stands there, or the launcher of others before one; without the task `run`: never."""
    launched = words[at] in former.LAUNCHERS and former.program_at(words[at:]) < len(words) - at
    return "run" in known.tasks and (former.is_program(words[at]) or launched)


def as_run_task(words: Sequence[str]) -> list[str]:
    """The task `run` for what a launcher of others was to start."""
    return ["run", *(words[former.program_at(words) :] or ["FILE"])]


def begins_training(word: str) -> bool:
    """Whether the words of a training begin so: with its stage, `--config`, or a file."""
    return word in (_STAGE, "--config") or word.endswith(EXPERIMENTS)


def as_training(rest: Sequence[str]) -> list[str]:
    """The words of the task `train` from a stage, `--config FILE` or a file, whichever they begin with."""
    if not rest:
        return ["train", _STAGE, "--config", "FILE"]
    rest = [word for word in rest if word not in ("train", _STAGE)]  # `pretrain train`, `--debug pretrain`
    return ["train", _STAGE, *(["--config"] if rest and rest[0].endswith(EXPERIMENTS) else []), *rest]


def with_stage(words: list[str]) -> list[str]:
    """`words`; behind the task `train`, its stage, where none stands there."""
    words = [word for word in words if word != f"--{_STAGE}"]
    at = next((at for at, word in enumerate(words, 1) if word == "train" and words[: at - 1][-1:] in ([], ["--"])), 0)
    if not at or (at < len(words) and not words[at].startswith("-") and not words[at].endswith(EXPERIMENTS)):
        return words
    return [*words[:at], *as_training(words[at:] if at < len(words) else [_STAGE, "--config", "FILE"])[1:]]


def with_dashes(words: Sequence[str], known: Known) -> list[str]:
    """`words`, which begin with a runtime, with a `--` before each further runtime and before the task."""
    task = find_task(words, known.tasks)
    found: list[str] = []
    for index, word in enumerate(words):
        begins = index == task or (index < task and word in known.runtimes and not may_be_value(words, index))
        if index and begins and words[index - 1] != "--":
            found.append("--")
        found.append(word)
    return found


def find_task(words: Sequence[str], tasks: Collection[str]) -> int:
    """Where the task stands: behind a `--`, or else where it is no value of an option; without a `--`, anywhere."""
    places = [index for index, word in enumerate(words) if word in tasks]
    behind = [index for index in places if index and words[index - 1] == "--"]
    certain = [index for index in places if not may_be_value(words, index)]
    return next(iter([*behind, *certain, *(places if "--" not in words else ())]), len(words))


def may_be_value(words: Sequence[str], index: int) -> bool:
    """Whether the word there may be the value of the option before it."""
    before = words[index - 1] if index else ""
    is_whole = before == "--" or "=" in before or re.fullmatch(r"-[A-Za-z][0-9]+", before)  # `-N2`
    return before.startswith("-") and not is_whole


def with_values(words: Sequence[str], refused: Sequence[str]) -> list[str]:
    """`words` with `--env A=1` for `--env A 1`, and with `--env` before each of several; empty: none is `refused`."""
    for at, (flag, name, value) in enumerate(zip(words, words[1:], words[2:], strict=False)):
        is_env = flag == "--env" and re.fullmatch(r"[A-Za-z_]\w*(?:[:=].*)?", name) and {name, value} & {*refused}
        if not is_env or value.startswith("-"):
            continue
        after = list(words[at + 3 :])
        bare = name.rstrip(":=")
        if "=" in bare:  # `--env A=1 B=2`
            return [*words[: at + 2], "--env", value, *after] if "=" in value else []
        return [*words[: at + 1], f"{bare}={after.pop(0) if value == '=' and after else value}", *after]
    return []


def with_image(words: Sequence[str], known: Known) -> list[str]:
    """The command with the lone word before the task as the image; empty: none is there that no option may take."""
    end = find_task(words, known.tasks)
    at = end - (2 if words[end - 1] == "--" else 1)
    is_value = words[at - 1] not in _SWITCHES and may_be_value(words, at)
    if end == len(words) or at < 1 or "--" in words[:at] or is_value or words[at].startswith("-"):
        return []
    options = [word for word in words[:at] if word not in word_set("of_docker")]
    return [*options, "--image", words[at], "--", *with_stage([*words[end:]])]


def near_word(known: Collection[str], head: str) -> str:
    """The word that `head` misspells or abbreviates; empty: there is none, or several."""
    longer = [word for word in known if len(head) > 2 and word.startswith(head)]
    return longer[0] if len(longer) == 1 else nearest(head, known, _ALIKE)
