"""Shell completion that follows the `--` segments: `primus completion bash|zsh|fish` prints a script to source.

The script asks `primus __complete INDEX WORDS...` for the candidates, so there is one completer for all shells.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from primus_core.errors import PrimusError, RequestError, suggestion

__all__ = ["answer", "candidates", "script"]

_BASH = """\
_primus() {
    local IFS=$'\\n'
    COMPREPLY=($("${COMP_WORDS[0]}" __complete "$COMP_CWORD" "${COMP_WORDS[@]}" 2>/dev/null))
    [[ ${#COMPREPLY[@]} -gt 0 ]] || compopt -o default
}
complete -F _primus primus primus-cli
"""
_ZSH = """\
#compdef primus primus-cli
_primus() {
    local -a found
    found=("${(@f)$("${words[1]}" __complete "$((CURRENT - 1))" "${words[@]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then compadd -- "${found[@]}"; else _files; fi
}
compdef _primus primus primus-cli
"""
_FISH = """\
function __primus_complete
    set -l words (commandline -opc)
    primus __complete (count $words) $words (commandline -ct) 2>/dev/null
end
complete -c primus -a '(__primus_complete)'
complete -c primus-cli -a '(__primus_complete)'
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def script(words: Sequence[str]) -> int:
    """Print the completion script of one shell."""
    if list(words) in ([], ["-h"], ["--help"]):
        sys.stdout.write("usage: primus completion bash|zsh|fish\n\nexamples:\n"
                         "  source <(primus completion bash)\n"
                         "  primus completion zsh > ~/.zfunc/_primus\n"
                         "  primus completion fish > ~/.config/fish/completions/primus.fish\n")  # fmt: skip
        return 0
    if words[0] not in SCRIPTS:
        raise RequestError(f"no completion for '{words[0]}'", why=f"known shells: {', '.join(SCRIPTS)}",
                           fix=suggestion(words[0], SCRIPTS) or "take one of them")  # fmt: skip
    sys.stdout.write(SCRIPTS[words[0]])
    return 0


def answer(words: Sequence[str]) -> int:
    """Print the candidates for the word at INDEX (words: INDEX, then the command line)."""
    try:
        index, line = int(words[0]), list(words[1:])
        before, current = line[1:index], line[index] if index < len(line) else ""
        found = candidates(before, current)
    except (PrimusError, ValueError, IndexError):  # a half-typed line is no error
        return 0
    sys.stdout.write("".join(f"{word}\n" for word in found))
    return 0


def candidates(before: Sequence[str], current: str) -> list[str]:
    """Words that may stand after `before` and begin with `current`."""
    from primus_core.plugins import Catalogue
    from primus_core.project import find

    catalogue = Catalogue(find(os.getcwd(), os.environ))
    words = [word for word in before if word not in ("--dry-run", "--debug")] if "--" not in before else list(before)
    return sorted({word for word in _possible(words, catalogue) if word.startswith(current)})


def _possible(before: list[str], catalogue: object) -> list[str]:
    from primus_core.cli import MANAGEMENT
    from primus_core.planner import runtime_parser, task_parser
    from primus_core.plugins import Catalogue

    assert isinstance(catalogue, Catalogue)
    runtimes, tasks = catalogue.first_words("runtimes"), set(catalogue.names("tasks"))
    if not before:
        return [*runtimes, *(name for name in MANAGEMENT if not name.startswith("_")), "--help", "--version", "--dry-run"]
    if before[0] == "completion":
        return list(SCRIPTS)
    if before[0] not in runtimes:
        return ["--json", "--help"] if before[0] == "plugins" else []
    if "--" not in before:
        return [*_flags(runtime_parser(catalogue.runtime(before[0]))), "--"]
    segment = before[before.index("--") + 1 :]
    if not segment:
        return [*{name.split()[0] for name in tasks}, *runtimes]
    if segment[0] in runtimes:
        return _possible(segment, catalogue)
    second = [name.split()[1] for name in tasks if len(name.split()) == 2 and name.split()[0] == segment[0]]
    if len(segment) == 1 and second:
        return second
    task, name, words = catalogue.task(segment)
    return _of_task(task_parser(task, name), words)


def _of_task(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Options and subcommands that may follow; after an option with fixed values, those values."""
    for action in parser._actions:  # noqa: SLF001  # argparse offers no other way to list them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  # the same
            if words and words[0] in action.choices:
                return _of_task(action.choices[words[0]], words[1:])
            return [*action.choices, *_flags(parser)]
        if words and words[-1] in action.option_strings and action.choices:
            return [str(choice) for choice in action.choices]
        if words and words[-1] in action.option_strings and action.nargs != 0:
            return []  # a value is due: the shell completes files
    stage = ["pretrain"] if parser.prog.endswith("-- train") and not words else []
    return [*stage, *_flags(parser)]


def _flags(parser: argparse.ArgumentParser) -> list[str]:
    return [flag for action in parser._actions for flag in action.option_strings]  # noqa: SLF001  # as above
