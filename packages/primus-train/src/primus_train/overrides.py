"""`key=value`, `--key value` and `--key=value` on a command line, as a document."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Any

from primus_core.config.document import ONE_KIND, REFUSED, Document, Path, both_kinds, clash, deep_merge, dotted
from primus_core.errors import ConfigError, Mistakes, RequestError, nearest
from primus_core.request import former
from primus_machine.documents.yaml_text import parse_value
from primus_machine.interpolation import interpolate

__all__ = [
    "TOP_LEVEL",
    "is_alone",
    "is_typed",
    "lacks_value",
    "meant_at_top",
    "no_section",
    "parse",
    "refuse_misspelt",
    "typed_words",
]

_PLACE = "command line: "
TOP_LEVEL = ("exp_name", "workspace", "work_group", "user_name", "on_non_finite")
"""Keys at the top of an experiment that may be typed as they are."""
_SECTION = "overrides."
_NEARLY = 0.75
_ALIKE = 0.85
"""No setting of a framework is so near to an option."""


def parse(words: Sequence[str], environ: Mapping[str, str], mistakes: Mistakes | None = None) -> Document:
    """The settings that `words` give, dotted keys nested; a later one wins. Values are YAML: `1e-5` is a float.

    `--key` alone is `true`. `${VAR}` is filled in as in a file, for what a shell's quotes left standing
    (`api_key='${MY_KEY}'`). With `mistakes`, what is wrong goes there.

    Raises:
        RequestError: a word is no setting, a variable is missing, or a key has a value and settings below it.
    """
    found = _Words(environ)
    rest = list(words)
    while rest:
        with found.mistakes:
            found.take(rest)
    if mistakes is None:
        found.mistakes.refuse()
    else:
        mistakes.add(*found.mistakes.found)
    return Document(found.data, found.marks)


def refuse_misspelt(words: Sequence[str], flags: Iterable[str]) -> None:
    """Refuse words that are nearly one of the `flags` of the command itself: as settings nobody would miss them.

    Raises:
        RequestError: with the option, for each of them.
    """
    mistakes, known = Mistakes(), [flag[2:] for flag in flags if flag.startswith("--")]
    for word, after in pairwise([*words, ""]):
        flag, equals, value = word.partition("=")
        longer = [name for name in known if name.startswith(f"{flag[2:]}-")]  # `--gpus 8` is `--gpus-per-node 8`
        is_number = (value if equals else after).isdigit()
        near = longer[0] if len(longer) == 1 and is_number else nearest(flag[2:], known, _ALIKE)
        if flag.startswith("--") and "." not in flag and near:
            fix = f"did you mean '--{near}'? A setting of that name is written {flag[2:]}={value or 'VALUE'}"
            what = f"unknown option '{flag}'"
            mistakes.add(RequestError(what, fix=fix, kind="unknown", options=[flag], meant=f"--{near}"))
    mistakes.refuse()


def is_typed(where: str) -> bool:
    """Return whether a value stands on the command line."""
    return where.startswith(_PLACE)


def meant_at_top(where: str) -> tuple[str, str]:
    """Return the fix for a typed setting that no framework has, and the key of the experiment that was meant; or empty.

    `overrides.` is where a file has the settings; `exp_nme` is nearly a key at its top.
    """
    word = "".join(typed_words(where)).partition("=")[0]
    name, dashes = word.lstrip("-"), "--" * word.startswith("--")
    meant = name.removeprefix(_SECTION) if name.startswith(_SECTION) else nearest(name, TOP_LEVEL, _NEARLY)
    return (f"write {meant}=VALUE", f"{dashes}{meant}") if meant else ("", "")


def typed_words(where: str) -> list[str]:
    """Return the word of the command line that begins a setting which stands there; none: it stands in a file."""
    return where.removeprefix(_PLACE).split()[:1] if is_typed(where) else []


def is_alone(where: str) -> bool:
    """Whether a value stands on the command line as `--key` alone, without a value of its own."""
    return where.startswith(f"{_PLACE}--") and not set(where.removeprefix(_PLACE)) & set("= ")


def lacks_value(where: str) -> RequestError:
    """The error for such a key, where `true` is no value for it."""
    word = where.removeprefix(_PLACE)
    fix = f"write {word} VALUE; a key alone means true, only for settings that are true or false"
    return RequestError(f"'{word}' has no value", fix=fix)


def no_section(path: Path, value: Any, where: str) -> ConfigError:
    """The error for a value where a section of settings belongs."""
    below = f"set one of its settings: {dotted(path)}.NAME=VALUE"
    return ConfigError(
        f"'{dotted(path)}' is {value!r}",
        where=where,
        why="it is a section of settings",
        fix=below if is_typed(where) else "write keys and values below it, indented",
    )


class _Words:
    """The settings so far."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ, self.mistakes = environ, Mistakes()
        self.data: dict[str, Any] = {}
        self.marks: dict[Path, str] = {}

    def take(self, rest: list[str]) -> None:
        """Take the next setting from `rest`."""
        shown, key, text = _next(rest)
        path = tuple(key.split("."))
        if not all(path):
            raise RequestError(f"'{shown}' is not a setting", why="a part between its dots is empty")
        where = f"{_PLACE}{shown}"
        value: Any = REFUSED
        with self.mistakes:
            if text is None:
                value = True
            elif not text:
                value = ""  # as a file's `key: ""`; nothing is `key=null`
            else:
                value = parse_value(interpolate(text, self.environ, where))
        self.put(path, value, where)

    def put(self, path: Path, value: Any, where: str) -> None:
        added = _below(path, value)
        found = clash(self.data, added)
        both = f"{self.marks[found].removeprefix(_PLACE)} and {where.removeprefix(_PLACE)}" if found else ""
        self.data = deep_merge(self.data, _below(found, REFUSED) if found else added)
        self.marks |= {path[:length]: where for length in range(1, len(path) + 1)}
        if found:
            raise RequestError(f"command line: {both_kinds(found)}", why=both, fix=ONE_KIND)


def _below(path: Path, value: Any) -> dict[str, Any]:
    for part in reversed(path[1:]):
        value = {part: value}
    return {str(path[0]): value}


_SETTING = r"[A-Za-z_]\w*(?:\.[\w.]+=|=(?:null|true|false)$)"
"""A word that is one by itself, and no value of the option before it."""
_FORMS = "write key=value, --key value or --key=value"
_ONE_LETTER = re.compile(r"-[A-Za-z]\d*(=.*)?", re.DOTALL)
"""An option of one letter, such as `-o`, `-n4` and `-o=x`: no setting is called so."""


def _joined(name: str, rest: list[str]) -> str:
    """What to write for `key value`, `key = value` or `key: value`, whose words are taken from `rest`."""
    if not re.fullmatch(r"[A-Za-z_][\w.]*", name) or not rest or rest[0].startswith("--") or "=" in rest[0][1:]:
        return _FORMS
    value = rest.pop(0)
    value = rest.pop(0) if value == "=" and rest else value.removeprefix("=")
    return f"write {shlex.quote(f'{name}={value}')}, as one word"


def _next(rest: list[str]) -> tuple[str, str, str | None]:
    """A setting as it stands, its key, and its value; None: it has none."""
    word = rest.pop(0)
    is_option = word.startswith("-") and rest and "=" in rest[0] and word in former.word_set("setting")
    if is_option or word.startswith("+"):  # of argparse, of Hydra
        meant = "" if is_option else word.partition("=")[0].lstrip("+")
        raise RequestError(f"'{word}' is not a setting", fix="write key=value alone", options=[word], meant=meant)
    if _ONE_LETTER.fullmatch(word):
        raise _unknown_letter(word, rest)
    name, equals, value = word.lstrip("-").partition("=")
    dashed = word.startswith("--")
    if not name or (word.startswith("-") and not dashed) or (not dashed and not equals):
        other = former.instead("direct", word) if word.startswith("-") and not dashed else ""
        fix = _FORMS if dashed else _joined(name.rstrip(":"), rest)
        raise RequestError(f"'{word}' is not a setting", fix=other or fix, options=[word])
    if dashed:  # `--tensor-model-parallel-size`, as on Megatron's own command line
        name = name.replace("-", "_")
    if equals:
        return word, name, value
    if not rest or (rest[0].startswith("--") and not rest[0][2:3].isdigit()) or re.match(_SETTING, rest[0]):
        return word, name, None
    if _ONE_LETTER.fullmatch(rest[0]):
        return word, name, None
    value = rest.pop(0)
    if more := list(takewhile(_is_bare, rest)):
        del rest[: len(more)]
        values = [value, *more][value == "=" :]
        right = shlex.quote(f"{name}={values[0]}" if len(values) == 1 else f"{name}=[{', '.join(values)}]")
        what = f"'{word}' has {len(more) + 1} words behind it: {value} {' '.join(more)}"
        raise RequestError(what, fix=f"write {right}, as one word")
    return f"{word} {value}", name, value


def _unknown_letter(word: str, rest: list[str]) -> RequestError:
    """The error for an option of one letter, whose value is taken from `rest`: what remains is the command without."""
    value = [rest.pop(0)] if "=" not in word and rest and _is_bare(rest[0]) else []
    what, other = f"unknown option '{word[:2]}'", former.instead("direct", word)
    if other or not value:
        meant = None if other else ""
        return RequestError(what, fix=other or "remove it", kind="unknown", options=[word], meant=meant)
    return RequestError(what, fix="remove it", kind="positional", options=[word, *value])


def _is_bare(word: str) -> bool:
    """Whether a word begins no setting."""
    return not word.startswith(("-", "+")) and "=" not in word[1:]
