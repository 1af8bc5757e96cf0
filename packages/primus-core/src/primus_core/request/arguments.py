"""argparse for one segment: errors are ours, name the segment, and suggest."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

from primus_machine.errors import Mistakes, RequestError

if TYPE_CHECKING:
    from primus_core.request.former import Answer

__all__ = ["Parser", "duration", "flags_of", "parse_segment", "size", "whole_number"]

_SMALLEST = 4096

Split = Callable[["Parser", Sequence[str]], tuple[Sequence[str], Sequence[str]]]
"""Words that are the parser's own, and the rest."""


def _formatter(prog: str) -> argparse.HelpFormatter:
    """Help as wide as the terminal. argparse would ask `shutil`, which loads every compression library to say so."""
    try:
        width = os.get_terminal_size(1).columns
    except OSError:
        width = 100
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=32, width=max(width - 2, 40))


class _Subcommands(argparse._SubParsersAction):  # type: ignore[type-arg]  # noqa: SLF001  # argparse has no public name for it
    """Subcommands whose own help begins with the line that the command's help has of them."""

    def add_parser(self, name: str, **kwargs: Any) -> Any:
        """As argparse does it."""
        kwargs.setdefault("description", kwargs.get("help"))
        return super().add_parser(name, **kwargs)


class Parser(argparse.ArgumentParser):
    """An argument parser that raises `RequestError` where argparse would print usage and exit."""

    def __init__(self, *args: Any, segment: str = "", **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", _formatter)
        kwargs["allow_abbrev"] = False  # `--dur` for `--duration` breaks when `--dummy` comes
        super().__init__(*args, **kwargs)
        self.segment = segment
        self.mistakes: Mistakes | None = None
        """Where refused values go, so that all of them are reported; None: the first one is raised."""
        self.rest = ""
        self.rest_checked = True
        self.split_rest: Split | None = None
        self.first_words: tuple[str, ...] = ()
        """What the first word may be, where only a plugin knows for sure. For completion."""

    @property
    def see_help(self) -> str:
        """What to type for the help: behind any runtime it is the same."""
        return f"see `{self.prog.replace(' ... ', ' direct ')} --help`"

    def add_subparsers(self, **kwargs: Any) -> Any:
        """As argparse does it."""
        kwargs.setdefault("action", _Subcommands)
        return super().add_subparsers(**kwargs)

    def rest_to(self, dest: str, *, checked: bool = True, split: Split | None = None) -> None:
        """Collect all words that no argument takes in `args.<dest>`.

        `checked`: an option that belongs to the runtime is refused there, since it was surely misplaced. `split`
        tells the rest from the parser's own, where only that knows which word is the value of another.
        """
        self.rest, self.rest_checked, self.split_rest = dest, checked, split
        self.set_defaults(**{dest: []})

    def error(self, message: str) -> NoReturn:
        """Called by argparse for whatever it cannot parse."""
        message = self._worded(message)
        missing = message.partition("the following arguments are required: ")[2].split(", ")
        if missing == [""]:
            raise self._refused(message)
        raise self._refused(message, fix=self._missing(missing), kind="missing", options=missing)

    def _refused(self, message: str, *, fix: str = "", **fields: Any) -> RequestError:
        what = f"{self.segment}: {message}" if self.segment else message
        return RequestError(what, fix=fix or self.see_help, where=self.prog.rpartition(" ")[2], **fields)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """As argparse does it; a value that is refused is kept as a mistake, and the next ones are looked at."""
        try:
            return super()._get_values(action, arg_strings)
        except argparse.ArgumentError as error:
            found = self._unfit(action, arg_strings, self._worded(str(error)))
            if self.mistakes is None or isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
                raise found from None
            self.mistakes.add(found)
            return action.default

    def _unfit(self, action: argparse.Action, values: list[str], message: str) -> RequestError:
        """Return the error for a value that an argument does not take."""
        choices = tuple(map(str, action.choices or ()))
        wrong = next((value for value in values if value not in choices), "")
        fix, meant = _answer(self.prog, wrong, choices) if choices else ("", None)
        return self._refused(message, fix=fix, kind="unknown", options=[wrong], meant=meant)

    @staticmethod
    def _worded(message: str) -> str:
        """Return a message of argparse without the name of an argument that stands by itself."""
        return re.sub(r"^argument (?:\{.*?\}: )?|/--\w(?=[:,]|$)", "", message)

    def _missing(self, missing: Sequence[str]) -> str:
        """Return what may stand for the arguments that argparse misses."""
        names = self.subcommands() or self.first_words
        if found := _answer(self.prog, missing[0]).fix or _answer("missing", missing[0]).fix:
            return found
        return f"known: {', '.join(names)}; {self.see_help}" if names and len(missing) == 1 else ""

    def actions(self) -> list[argparse.Action]:
        """The arguments that were added."""
        return self._actions

    def subcommands(self) -> dict[str, Parser]:
        """The parsers of the subcommands, by name; argparse keeps them in an action."""
        kinds = (action for action in self._actions if isinstance(action, argparse._SubParsersAction))  # noqa: SLF001
        return {name: sub for action in kinds for name, sub in action.choices.items()}

    def below(self, words: Sequence[str]) -> Parser:
        """The parser of the subcommand that `words` begin with, or this one."""
        subs = self.subcommands()
        return subs[words[0]].below(words[1:]) if words and words[0] in subs else self


def _answer(place: str, word: str, known: Collection[str] = ()) -> Answer:
    """What to do about a word that is refused: other tools may have it."""
    from primus_core.request import former

    return former.answer(place, word, known)


def flags_of(parser: Parser) -> list[str]:
    """Every option string of `parser` and of its subcommands."""
    own = [flag for action in parser.actions() for flag in action.option_strings]
    return own + [flag for sub in parser.subcommands().values() for flag in flags_of(sub)]


def parse_segment(parser: Parser, words: Sequence[str], elsewhere: Collection[str] = ()) -> argparse.Namespace:
    """Parse one segment. `elsewhere` are the options of the other segments, to say when one is only misplaced.

    Raises:
        RequestError: an unknown option or a bad value, with a suggestion.
    """
    mistakes = parser.mistakes = Mistakes()
    _name_segment(parser, parser.segment)
    args = argparse.Namespace()
    with mistakes:
        args = _parsed(parser, words, elsewhere, mistakes)
    mistakes.refuse()
    return args


def _parsed(parser: Parser, words: Sequence[str], elsewhere: Collection[str], mistakes: Mistakes) -> argparse.Namespace:
    words = _joined(parser.below(words), words)
    _refuse_positional(parser, words)
    words, rest = parser.split_rest(parser, words) if parser.split_rest else (words, ())
    known, where = flags_of(parser), f"{parser.segment}: " if parser.segment else ""
    for word in words:
        if (flag := f"-{word.partition('=')[0]}") in known and len(flag) > 3:  # `-output` is no `-o utput`
            raise _unknown(where, word, f"did you mean '{flag}'?", flag)
    try:
        args, unknown = parser.parse_known_args(list(words))
    except RequestError:  # argparse takes the value behind a misspelt option for a word of its own
        _refuse_misspelt(parser, words)
        raise
    behind = {after for word, after in pairwise(words) if word[:1] == "-" and word in unknown}
    mistakes.found = [one for one in mistakes.found if one.option not in behind]
    parser = parser.below(words)
    misplaced = [word for word in unknown if word.split("=", 1)[0] in elsewhere] if parser.rest_checked else []
    if misplaced:
        flag = misplaced[0].split("=", 1)[0]
        raise RequestError(
            f"{where}'{flag}' is in the wrong segment",
            why="it is an option of the runtime",
            fix=f"put {flag} before the `--`",
            kind="misplaced",
            options=[flag],
        )
    if parser.rest:
        setattr(args, parser.rest, [*unknown, *rest])
        return args
    refused = [word for word in unknown if word.startswith("-")] or unknown[:1]
    for word in refused[:1] if refused and _answer(parser.prog, refused[0]).fix else refused:
        with mistakes:
            _refuse_misspelt(parser, [word])
            is_task = "-- <task>" in (parser.usage or "") and not word.startswith("-")
            fix = f"put {'settings behind' if '=' in word else '`--` before'} the task; " if is_task else ""
            other = _answer(parser.prog, word)
            fix = other.fix or f"{fix}{parser.see_help}"
            raise _unknown(where, word, fix, other.meant)
    return args


def _refuse_positional(parser: Parser, words: Sequence[str]) -> None:
    """Refuse options of other tools for what stands by itself here: `config show --config FILE`."""
    above, parser = parser, parser.below(words)
    if parser.split_rest or (parser.rest and parser.segment):  # the words of a program, settings of a training
        return
    flags = flags_of(parser)
    names = [str(action.metavar) for action in parser.actions() if not action.option_strings and action.metavar]
    words = words[len(parser.prog.split()) - len(above.prog.split()) :]
    is_given = len(names) == 1 and words and words[0][:1] != "-"
    unknown = [word for word in words if word[:1] == "-" and word.partition("=")[0] not in flags]
    found = [(word, name) for word in unknown for name in names if _is_positional(parser.prog, word, name)]
    if found:
        where = f"{parser.segment}: " if parser.segment else ""
        fix = f"write {' and '.join(dict.fromkeys(name for _, name in found))} alone, without an option"
        fix = f"remove it: {names[0]} is {words[0]}" if is_given else fix
        options, kind = [*dict.fromkeys(word for word, _ in found)], "" if is_given else "positional"
        what = f"{where}unknown option '{options[0].partition('=')[0]}'"
        raise RequestError(what, fix=fix, kind=kind, options=options)


def _is_positional(place: str, word: str, name: str) -> bool:
    from primus_core.request import former

    return former.is_positional(word.partition("=")[0], name) and not former.instead(place, word)


def _refuse_misspelt(parser: Parser, words: Sequence[str]) -> None:
    """Refuse the first of `words` that is nearly an option; where others may follow, it may be one of these."""
    below = parser.below(words)
    known = flags_of(below)
    for word in () if below.rest else words:
        flag = word.partition("=")[0]
        unknown = flag.startswith("-") and flag not in known
        near = _answer(below.prog, flag, known) if unknown else None
        if near and near.fix:
            raise _unknown(f"{below.segment}: " if below.segment else "", word, near.fix, near.meant)


def _unknown(where: str, word: str, fix: str, meant: str | None) -> RequestError:
    kind = "option" if word.startswith("-") else "word"
    return RequestError(f"{where}unknown {kind} '{word}'", fix=fix, kind="unknown", options=[word], meant=meant)


def _joined(parser: Parser, words: Sequence[str]) -> list[str]:
    """The same; an option that may stand alone takes the next word only where that can be one of its values."""
    optional = {flag: action for action in parser.actions() for flag in action.option_strings if action.nargs == "?"}
    rest, found = list(words), []
    while rest:
        word = rest.pop(0)
        if action := optional.get(word):
            word = f"{word}={rest.pop(0) if rest and _can_be(rest[0], action, parser) else action.const}"
        found.append(word)
    return found


def _can_be(word: str, action: argparse.Action, parser: Parser) -> bool:
    """Whether `word` can be the value of an option that may stand alone: one of its choices; where it has none,
    anything but an option or a choice of an argument that stands by itself.
    """
    if action.choices is not None:
        return word in action.choices
    places = (other.choices or () for other in parser.actions() if not other.option_strings)
    return not word.startswith("-") and not any(word in choices for choices in places)


def _name_segment(parser: Parser, segment: str) -> None:
    """Give subcommands their segment: argparse makes them without one."""
    for sub in parser.subcommands().values():
        sub.segment, sub.mistakes = segment, parser.mistakes
        _name_segment(sub, segment)


def duration(text: str) -> float:
    """For `type=`: seconds, of `30s`, `10m`, `1h30m` or a number of seconds.

    Raises:
        argparse.ArgumentTypeError: it is none of them, or longer than a week.
    """
    units = {"h": 3600, "m": 60, "s": 1}
    found = re.fullmatch(r"(?:([0-9]{1,4})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,7}(?:\.[0-9]+)?)s?)?", text)
    parts = found.groups() if found else ()
    seconds = sum(float(part or 0) * unit for part, unit in zip(parts, units.values(), strict=bool(parts)))
    if not text or not found or seconds > 7 * 86400:
        raise argparse.ArgumentTypeError(f"'{text}' is not a duration such as 30s, 10m or 1h30m, of at most a week")
    return seconds


def size(text: str) -> int:
    """For `type=`: bytes, of `500MB`, `2GiB` or a number of bytes; 0: no limit.

    Raises:
        argparse.ArgumentTypeError: it is none of them, or too small to hold anything.
    """
    found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,3})?)(?:([kKMGT])(i?)B?|B)?", text)
    if not found:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size such as 500MB or 2GiB")
    unit = (1024 if found[3] else 1000) ** " kMGT".index((found[2] or " ").replace("K", "k"))
    count = int(float(found[1]) * unit)
    if 0 < count < _SMALLEST:
        raise argparse.ArgumentTypeError(f"'{text}' is too small: the minimum is {_SMALLEST} bytes")
    return count


def whole_number(text: str) -> int:
    """For `type=`: how many.

    Raises:
        argparse.ArgumentTypeError: it is not a number from 0 to 9999.
    """
    if not (text.isdecimal() and text.isascii() and len(text) < 5):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 0 to 9999")
    return int(text)
