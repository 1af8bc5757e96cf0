"""Whether a command that an error proposes would be understood: what is refused again is no help."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from primus_core.cli import commands
from primus_core.installed import homes
from primus_core.planning import options
from primus_core.plugins.catalogue import Catalogue
from primus_core.request import request
from primus_core.request.arguments import parse_segment
from primus_machine.errors import PrimusError, RequestError
from primus_machine.host import HostRoot

__all__ = ["checked", "refusal"]

_COMMAND = re.compile(r"(?:did you mean:? `?)?(?:[A-Z_]+=\S+ )*primus (?P<words>[^`]+)`?\??")


def checked(fix: str) -> str:
    """Return the lines of `fix` without commands that Primus refuses; where nothing is left, where to look."""
    left, head = [], ""
    for line in fix.split("\n"):
        found = _COMMAND.fullmatch(line)
        words = _split(found["words"]) if found else []
        error = refusal(words) if words else None
        if error and error.kind != "missing":  # what is required is told next, with an example
            rest = request.global_words(words)[1]
            task = [at for at, word in enumerate(rest[:-1]) if word == "--"][-1:]
            head = " ".join([*rest[:1], *("--" for _ in task), *(rest[at + 1] for at in task)])
        else:
            left.append(line)
    return "\n".join(left) or (f"see `primus {head} --help`" if head else "")


def _split(text: str) -> list[str]:
    """The words of a command; none where it is text for people: `primus direct -- <task>; tasks: ...`."""
    try:
        words = [] if set("<;:$|") & set(re.sub(r"(?<=\w):(?=\S)", "", text)) else shlex.split(text)
    except ValueError:
        return []
    return [] if {"TASK", "..."} & {*words} else words


def refusal(words: Sequence[str]) -> PrimusError | None:
    """Return the error of the command line `primus WORDS`, as far as its options say; None: it is understood."""
    if list(words) in (["--version"], ["--help"]):
        return None
    try:
        _, rest = request.global_words(words)
        installed = commands.names()
        if rest and rest[0] in {*installed, *homes.names("commands")}:
            if rest[0] in installed and rest[0] != "replay":  # it finds the runtimes among its words by itself
                parse_segment(commands.load(rest[0]).parser(), rest[1:])
            return None
        catalogue = Catalogue.here(HostRoot(), request.config_of(words))
        asked = request.parse(words, catalogue.first_words("runtimes"), catalogue.first_words("tasks"))
        for layer in asked.layers:
            runtime = catalogue.runtime(layer.runtime)
            if layer is not asked.layers[-1] and not hasattr(runtime, "wrap"):
                return RequestError(f"'{layer.runtime}' holds no other runtime")
            parse_segment(options.runtime_parser(runtime), layer.words)
        if asked.task:
            task, name, rest = catalogue.task(asked.task)
            parse_segment(options.task_parser(task, name), rest)
    except RequestError as error:
        return error
    except (PrimusError, SystemExit):  # a package is not installed, which is said next; --help
        return None
    return None
