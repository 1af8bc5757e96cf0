"""Shell completion that follows the `--` segments: `primus completion bash|zsh|fish` prints a script to source.

The script asks `primus __complete INDEX WORDS...` for the candidates, so there is one completer for all shells.
"""

from __future__ import annotations

import sys
from argparse import SUPPRESS
from collections.abc import Sequence

from primus_core.cli.commands import load
from primus_core.plugins.catalogue import Catalogue
from primus_core.request.arguments import Parser
from primus_machine.errors import PrimusError
from primus_machine.host import HostRoot

__all__ = ["answer", "candidates"]


def answer(words: Sequence[str], commands: Sequence[str]) -> int:
    """Print the candidates for the word at INDEX (words: INDEX, then the command line).

    `commands` are those that need no runtime.
    """
    try:
        index, line = int(words[0]), list(words[1:])
        before, current = line[1:index], line[index] if index < len(line) else ""
        found = candidates(before, current, commands)
    except (PrimusError, ValueError, IndexError):  # a half-typed line is no error
        return 0
    sys.stdout.write("".join(f"{word}\n" for word in found))
    return 0


def candidates(before: Sequence[str], current: str, commands: Sequence[str]) -> list[str]:
    """Words that may stand after `before` and begin with `current`."""
    catalogue = Catalogue.here(HostRoot())
    words = [word for word in before if word not in ("--dry-run", "--debug")] if "--" not in before else list(before)
    return sorted({word for word in _possible(words, catalogue, commands) if word.startswith(current)})


def _possible(before: list[str], catalogue: Catalogue, commands: Sequence[str]) -> list[str]:
    runtimes = catalogue.first_words("runtimes")
    if not before:
        return [*runtimes, *commands, "--help", "--version", "--dry-run"]
    if before[0] in runtimes:
        return _behind_runtime(before, catalogue)
    return _of_parser(load(before[0]).parser(), before[1:]) if before[0] in commands else []


def _behind_runtime(before: list[str], catalogue: Catalogue) -> list[str]:
    from primus_core.planning.options import runtime_parser

    if "--" not in before:
        return [*_of_parser(runtime_parser(catalogue.runtime(before[0])), before[1:]), "--"]
    segment = before[before.index("--") + 1 :]
    if segment and segment[0] in catalogue.first_words("runtimes"):
        return _behind_runtime(segment, catalogue)
    return _in_task(segment, catalogue)


def _in_task(segment: list[str], catalogue: Catalogue) -> list[str]:
    from primus_core.planning.options import task_parser

    names = [name.split() for name in catalogue.names("tasks")]
    if not segment:
        return [name[0] for name in names]
    second = [name[1] for name in names if len(name) > 1 and name[0] == segment[0]]
    if len(segment) == 1 and second:
        return second
    task, name, words = catalogue.task(segment)
    return _of_parser(task_parser(task, name), words)


def _of_parser(parser: Parser, words: Sequence[str]) -> list[str]:
    """Options and subcommands that may follow; after an option with fixed values, those values."""
    subs = parser.subcommands()
    if words and words[0] in subs:
        return _of_parser(subs[words[0]].below(()), words[1:])
    for action in parser.actions():
        if words and words[-1] in action.option_strings and action.choices:
            return [str(choice) for choice in action.choices]
        if words and words[-1] in action.option_strings and action.nargs != 0:
            return []  # a value is due: the shell completes files
    positional = [str(c) for action in parser.actions() if not action.option_strings for c in action.choices or ()]
    return [*(() if words else [*parser.first_words, *positional]), *subs, *_flags(parser)]


def _flags(parser: Parser) -> list[str]:
    """What `--help` shows."""
    return [flag for action in parser.actions() if action.help != SUPPRESS for flag in action.option_strings]
