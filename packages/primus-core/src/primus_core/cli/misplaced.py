"""An option that stands in the segment of another: the whole command with it where it belongs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from primus_core.planning import options
from primus_core.planning.outer_layers import INNERMOST, inner_parser
from primus_core.plugins.catalogue import Catalogue
from primus_core.request import former, request
from primus_core.request.arguments import Parser
from primus_machine.errors import PrimusError
from primus_machine.host import HostRoot

__all__ = ["moved"]


def moved(words: Sequence[str], errors: Sequence[PrimusError]) -> list[str]:
    """Return `words` with each option that `errors` are about in the segment that has it; empty: none has any."""
    whole = list(words)
    for error in errors:
        behind = next((at for at, word in enumerate(words) if word == error.option), 0)  # the value of one, maybe
        for option in (*error.options, *words[max(behind - 1, 0) : behind]):
            flag = option.replace("/", "=").partition("=")[0]
            if flag.startswith("-"):
                whole = _moved(whole, flag) or whole
    return whole if whole != list(words) else []


def _moved(words: Sequence[str], flag: str) -> list[str]:
    catalogue = Catalogue.here(HostRoot(), request.config_of(words))
    try:
        asked = request.parse(words, catalogue.first_words("runtimes"), catalogue.first_words("tasks"))
        parsers = [options.runtime_parser(catalogue.runtime(layer.runtime)) for layer in asked.layers]
        inner = inner_parser(catalogue)
        task, name, _ = catalogue.task(asked.task)
        parsers.append(options.task_parser(task, name).below(asked.task[1:]))
    except PrimusError:  # another mistake comes first
        return []
    segments = [[layer.runtime, *layer.words] for layer in asked.layers] + [list(asked.task)]
    owners = [at for at, parser in enumerate(parsers) if _has(parser, segments[at][0], flag)]
    others = [segment for at, segment in enumerate(segments) if at not in owners]
    found = [(segment, at) for segment in others for at, word in enumerate(segment) if word.partition("=")[0] == flag]
    if not owners and _has(inner, INNERMOST, flag):
        owners, parsers = [len(segments) - 1], [*parsers[:-1], inner]
        segments.insert(owners[0], [INNERMOST])
    if not owners or len(found) != 1:
        return []
    segment, at = found[0]
    taken = [*_taken(segment[at:], parsers[owners[-1]])]
    del segment[at : at + len(taken)]
    owner = segments[owners[-1]]
    if taken not in (owner[at : at + len(taken)] for at in range(len(owner))):
        owner += taken
    front = request.global_words(words)[0]
    return [*front, *(word for segment in segments for word in (*segment, "--"))][:-1]


def _has(parser: Parser, name: str, flag: str) -> bool:
    return any(flag in action.option_strings for action in parser.actions()) or flag in former.word_set(f"of_{name}")


def _taken(words: Sequence[str], parser: Parser) -> Iterator[str]:
    """The option that `words` begin with, and its value."""
    flag, equals, _ = words[0].partition("=")
    is_switch = any(flag in action.option_strings and action.nargs == 0 for action in parser.actions())
    yield words[0]
    if not (equals or is_switch) and words[1:] and not words[1].startswith("-"):
        yield words[1]
