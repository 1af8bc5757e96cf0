"""Gives a runtime's options the values that a config file names, so that the command line wins over them.

A value takes the option's own way: its type, its choices, its action.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NoReturn

from primus_machine.errors import Mistakes

if TYPE_CHECKING:
    import argparse

    from primus_core.config.document import Document
    from primus_core.request.arguments import Parser

__all__ = ["apply_defaults", "in_words"]

# What an option's metavar says when it takes a path: `FILE`, or `K=V|FILE` for either.
_PATHS = frozenset({"FILE", "FOLDER", "DIR", "PATH"})
_MOUNT = "PATH[:DST][:ro]"
_HIDDEN = "==SUPPRESS=="
"""`argparse.SUPPRESS`, without its import."""


class _Given(str):
    where = ""  # its file and line, which `environment.resolve` names


def apply_defaults(parser: Parser, section: Document) -> tuple[str, ...]:
    """Make the values in `section` the defaults of the long options of the same names (`-` for `_`).

    A repeatable option keeps them, and adds the command line's behind. An option that is on can be switched off with
    `--no-<name>`. A path is relative to the file that names it.

    Returns:
        For a runtime that passes options on, those in `section` that are not its own, as words to put before the
        command line's.

    Raises:
        ConfigError: an unknown option, or a value that it does not take.
    """
    options, mistakes = _options(parser), Mistakes()
    passed: list[str] = []
    for key, value in section.data.items():
        if value is None:  # as if no layer had set it
            continue
        setting = _Setting(parser, key, section.where((key,)))
        with mistakes:
            if key in options:
                flag, action = options[key]
                setting.apply(flag, action, value)
            elif parser.rest:
                passed += setting.words(value)
            else:
                setting.unknown(list(options))
    mistakes.refuse()
    return tuple(passed)


def in_words(parser: Parser, section: Document) -> tuple[str, ...]:
    """The values in `section` as words for `parser`, which is spent then: for who parses them again elsewhere.

    Raises:
        ConfigError: an unknown option, or a value that it does not take.
    """
    apply_defaults(parser, section)
    options, words = _options(parser), []
    for key, value in section.data.items():
        if value is not None:
            words += _Setting(parser, key, section.where((key,))).typed(options[key][1], value)
    return tuple(words)


def _options(parser: Parser) -> dict[str, tuple[str, argparse.Action]]:
    """Those that `--help` shows: the others are what layers of Primus tell each other."""
    shown = [action for action in parser.actions() if action.help != _HIDDEN]
    found = [(flag, action) for action in shown for flag in action.option_strings if flag.startswith("--")]
    return {flag[2:].replace("_", "-"): (flag, action) for flag, action in found if flag != "--help"}


class _Setting:
    """One key of a section, and its place."""

    def __init__(self, parser: Parser, key: str, where: str) -> None:
        self.parser, self.key, self.where = parser, key, where

    def fail(self, what: str, *, why: str = "", fix: str = "") -> NoReturn:
        from primus_machine.errors import ConfigError

        raise ConfigError(what, where=self.where, why=why, fix=fix)

    def shown(self, value: Any) -> str:
        """A value as an error may quote it."""
        from primus_machine.secrets.redaction import quoted

        return quoted(value, self.key)

    def unknown(self, known: list[str]) -> NoReturn:
        from primus_machine.errors import suggestion

        why = f"it has: {', '.join(sorted(known))}"
        fix = suggestion(self.key, known) or self.parser.see_help
        self.fail(f"`{self.parser.prog}` has no option '{self.key}'", why=why, fix=fix)

    def apply(self, flag: str, action: argparse.Action, value: Any) -> None:
        if action.nargs == 0:
            default = self._switch(flag, action, value)
        elif _repeats(action):
            default = self._called(flag, action, [self._one(action, item) for item in self._items(flag, value)])
        elif _many(action):
            default = self._called(flag, action, [[self._one(action, item) for item in self._items(flag, value)]])
        else:
            default = self._called(flag, action, [self._one(action, value)])
        action.required = False
        self.parser.set_defaults(**{action.dest: default})

    def words(self, value: Any) -> list[str]:
        """The setting as the engine behind a runtime takes it."""
        if isinstance(value, dict):
            self.fail(f"'{self.key}' takes a value or a list", why=f"it is {self.shown(value)}")
        if isinstance(value, bool):
            return [f"--{self.key}"] if value else []
        return [f"--{self.key}={item}" for item in (value if isinstance(value, list) else [value])]

    def typed(self, action: argparse.Action, value: Any) -> list[str]:
        """The setting as a person would type it."""
        if isinstance(value, bool):
            return [f"--{self.key}"] if value else []
        return [
            f"--{self.key}={self._whole(action, str(item))}" for item in (value if isinstance(value, list) else [value])
        ]

    def _switch(self, flag: str, action: argparse.Action, value: Any) -> Any:
        if not isinstance(value, bool):
            self.fail(f"'{self.key}' must be true or false", why=f"it is {self.shown(value)}")
        opposite = f"--no-{flag[2:]}"
        if value:
            self._offer_off(opposite, action)
            return self._called(flag, action, [[]])
        if opposite in action.option_strings:
            return self._called(opposite, action, [[]])
        const = getattr(action, "const", None)
        return not const if isinstance(const, bool) else action.default

    def _offer_off(self, flag: str, action: argparse.Action) -> None:
        """What a file switched on, the command line must be able to switch off."""
        taken = any(flag in other.option_strings for other in self.parser.actions())
        if taken or getattr(action, "const", None) is not True:
            return
        self.parser.add_argument(flag, dest=action.dest, action="store_false", help=_HIDDEN)

    def _items(self, flag: str, value: Any) -> list[Any]:
        if not isinstance(value, list):
            pairs = [f"{name}={one}" for name, one in value.items()] if isinstance(value, dict) else []
            shown = ", ".join(map(self.shown, pairs)) or self.shown(value)
            self.fail(f"'{self.key}' takes a list", why=f"{flag} is repeatable", fix=f"write [{shown}]")
        return value

    def _one(self, action: argparse.Action, value: Any) -> Any:
        if isinstance(value, bool | list | dict) or value is None:
            self.fail(f"'{self.key}' takes {action.metavar or 'a value'}", why=f"it is {self.shown(value)}")
        text = self._whole(action, str(value))
        converted = self._typed(action, text)
        if action.choices is not None and converted not in action.choices:
            from primus_machine.errors import suggestion

            known = [str(choice) for choice in action.choices]
            self.fail(
                f"'{self.key}' cannot be {self.shown(text)}",
                why=f"known: {', '.join(known)}",
                fix=suggestion(text, known) or "use one of them",
            )
        if type(converted) is str:
            converted = _Given(converted)
            converted.where = self.where
        return converted

    def _whole(self, action: argparse.Action, text: str) -> str:
        if action.metavar == _MOUNT:
            source, *rest = text.split(":")
            return ":".join([self._beside(source), *rest]) if "=" not in source else text
        forms = set(action.metavar.split("|")) if isinstance(action.metavar, str) else set()
        if not _PATHS & forms or not text:
            return text
        path = self._beside(text)
        return path if forms <= _PATHS or os.path.exists(path) else text

    def _beside(self, text: str) -> str:
        """A path, relative to the file that names it, made whole."""
        folder = os.path.dirname(self.where.rpartition(":")[0])
        return os.path.normpath(os.path.join(folder, os.path.expanduser(text)))

    def _typed(self, action: argparse.Action, text: str) -> Any:
        from argparse import ArgumentTypeError

        if not callable(action.type):
            return text
        try:
            return action.type(text)
        except ArgumentTypeError as error:
            self.fail(f"'{self.key}': {str(error).replace(text, self.shown(text)[1:-1])}")
        except (TypeError, ValueError):
            kinds: dict[Any, str] = {int: "a whole number", float: "a number"}
            self.fail(f"'{self.key}' is {self.shown(text)}", why=f"it must be {kinds.get(action.type, 'valid')}")

    def _called(self, flag: str, action: argparse.Action, values: list[Any]) -> Any:
        """What the option's action makes of the values, one call for each time that it is given."""
        from argparse import Namespace

        space = Namespace(**{action.dest: [] if _repeats(action) else action.default})
        for value in values:
            action(self.parser, space, value, flag)
        return getattr(space, action.dest)


def _repeats(action: argparse.Action) -> bool:
    import argparse

    return isinstance(action, argparse._AppendAction) and not _many(action)  # noqa: SLF001  # it has no other name


def _many(action: argparse.Action) -> bool:
    return action.nargs in ("*", "+") or isinstance(action.nargs, int)
