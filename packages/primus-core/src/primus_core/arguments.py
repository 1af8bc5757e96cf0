"""argparse for one segment: errors are ours, name the segment, and suggest."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

from primus_core.errors import RequestError, suggestion

__all__ = ["Parser", "flags_of", "parse_segment"]


class Parser(argparse.ArgumentParser):
    """An argument parser that raises `RequestError` where argparse would print usage and exit."""

    def __init__(self, *args: Any, segment: str = "", **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, allow_abbrev=False, **kwargs)
        self.segment = segment
        self.rest = ""
        self.rest_checked = True

    def rest_to(self, dest: str, *, checked: bool = True) -> None:
        """Collect all words that no argument takes in `args.<dest>`.

        `checked`: an option that belongs to the runtime is refused there, since it was surely misplaced.
        """
        self.rest, self.rest_checked = dest, checked
        self.set_defaults(**{dest: []})

    def error(self, message: str) -> NoReturn:
        """Called by argparse for whatever it cannot parse."""
        what = f"{self.segment}: {message}" if self.segment else message
        raise RequestError(what, fix=f"see `{self.prog} --help`")


def flags_of(parser: argparse.ArgumentParser) -> list[str]:
    """Every option string of `parser` and of its subcommands."""
    found: list[str] = []
    for action in parser._actions:  # noqa: SLF001  # argparse offers no other way to list them
        found += action.option_strings
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  # the same
            for sub in action.choices.values():
                found += flags_of(sub)
    return found


def parse_segment(parser: Parser, words: Sequence[str], elsewhere: Collection[str] = ()) -> argparse.Namespace:
    """Parse one segment. `elsewhere` are the options of the other segments, to say when one is only misplaced.

    Raises:
        RequestError: an unknown option or a bad value, with a suggestion.
    """
    _name_segment(parser, parser.segment)
    args, unknown = parser.parse_known_args(list(words))
    where = f"{parser.segment}: " if parser.segment else ""
    misplaced = [word for word in unknown if word.split("=", 1)[0] in elsewhere] if parser.rest_checked else []
    if misplaced:
        flag = misplaced[0].split("=", 1)[0]
        raise RequestError(f"{where}'{flag}' stands in the wrong segment", why="it is an option of the runtime",
                           fix=f"put {flag} before the `--`")  # fmt: skip
    if parser.rest:
        setattr(args, parser.rest, unknown)
    elif unknown:
        hint = suggestion(unknown[0].split("=", 1)[0], flags_of(parser)) if unknown[0].startswith("-") else ""
        raise RequestError(f"{where}'{unknown[0]}' is not known here", fix=hint or f"see `{parser.prog} --help`")
    return args


def _name_segment(parser: argparse.ArgumentParser, segment: str) -> None:
    """Give subcommands their segment: argparse makes them without one."""
    for action in parser._actions:  # noqa: SLF001  # argparse offers no other way to list them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  # the same
            for sub in action.choices.values():
                sub.segment = segment
                _name_segment(sub, segment)
