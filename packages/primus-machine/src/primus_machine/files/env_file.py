"""Read a file of `--env`: assignments as a shell reads them, with quotes, comments and `${NAME}`, but no commands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from primus_machine.errors import Mistakes, RequestError

__all__ = ["Assignment", "read_assignments"]

_NAME = "[A-Za-z_][A-Za-z0-9_]*"
_REFERENCE = re.compile(rf"\$(?:({_NAME})|\{{({_NAME})(?:(:?-)([^{{}}$`\"'\\]*))?\}})")
_SPECIAL = "&|<>()`"
_OF_SHELL = tuple("({0123456789$?!#@*-")
"""What a shell expands behind a `$`, beside names."""
_NO_COMMANDS = "write the value itself: Primus runs no commands of this file"
_KEYWORDS = {"if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done", "case", "esac", "function"}
_FIXES = {
    "&&": "put each assignment on a line of its own",
    "||": "put each assignment on a line of its own",
    "`": _NO_COMMANDS,
    "(": "write one text: a variable of the environment holds no list",
}
"""What to do about a special character, where quotes would change what is meant."""


class Assignment(NamedTuple):
    """One `NAME=VALUE`, or a `NAME` alone, with its line."""

    text: str
    line: int


def read_assignments(text: str, path: str, environ: Mapping[str, str], mistakes: Mistakes) -> Iterator[Assignment]:
    """Yield what the file assigns, in order. `${NAME}` is the value of an earlier line, or else that of `environ`.

    To `mistakes` goes each line that is no assignment of a shell, runs a command, or refers to what is not set.
    """
    reader = _Reader(text.removeprefix("\ufeff").replace("\r\n", "\n"), path, dict(environ))
    while reader.at < len(reader.text):
        begin = reader.at
        with mistakes:
            yield from tuple(reader.statement())
            continue
        reader.skip(begin)


class _Reader:
    """A place in the text, and the variables so far."""

    def __init__(self, text: str, path: str, known: dict[str, str]) -> None:
        self.text, self.path, self.known, self.at = text, path, known, 0
        self.open_quote = ""
        self.assigned = set[str]()
        """Names that the file itself gives a value."""

    @property
    def line(self) -> int:
        return self.text.count("\n", 0, self.at) + 1

    def skip(self, begin: int) -> None:
        """Go behind the line of a mistake. Its name is known from then on: what refers to it is no further mistake."""
        end = self.text.find("\n", self.at) + 1 or len(self.text)
        if self.open_quote and self.text.find(self.open_quote, self.at, end) < 0:
            end = len(self.text)  # what is inside the quotes are no lines of the file
        self.open_quote = ""
        self.at = self.at if self.text[begin : self.at].endswith("\n") else end
        if name := re.match(rf"\s*(?:export\s+|declare\s+-x\s+)?({_NAME})=", self.text[begin : self.at]):
            self.known.setdefault(name[1], "")

    def statement(self) -> Iterator[Assignment]:
        """Read up to the end of a line or `;`."""
        start, words = self.at, list[Assignment]()
        while (word := self.word()) is not None:
            words.append(word)
        raw, line = self.text[start : self.at].strip().rstrip(";"), words[0].line if words else 0
        said = [word.text for word in words[:2]]
        front = 1 if said[:1] == ["export"] else 2 if said == ["declare", "-x"] else 0
        words = words[front:]
        if not front and {*said} & _KEYWORDS:
            what = f"'{raw}' is neither NAME=VALUE, nor NAME"
            raise RequestError(f"{self.path}:{line}: {what}", fix=_NO_COMMANDS)
        if front and (not words or words[0].text.startswith("-")):
            what = f"'{raw}' names no variable" if not words else f"options of `{said[0]}` are not supported: '{raw}'"
            raise RequestError(f"{self.path}:{line}: {what}", fix="write export NAME=VALUE, or remove the line")
        passed = self.known if front and "=" in words[0].text else [word.text for word in words if front]
        if len(words) > 1 and not all("=" in word.text or word.text in passed for word in words):
            name, equals, _ = words[0].text.partition("=")
            what = f"a blank ends the value of {name}" if equals else f"'{raw}' is neither NAME=VALUE, nor NAME"
            fix = "quote a value with blanks: NAME='a b'" if equals else "write NAME=VALUE, without blanks around '='"
            fix += f", or set {words[1].text}, which is passed on" if front and words[1].text.isidentifier() else ""
            raise RequestError(f"{self.path}:{line}: {what}", fix=f"{fix}; Primus runs no commands of this file")
        for word in words:
            yield word._replace(text=f"{word.text}={self.known[word.text]}") if word.text in self.assigned else word

    def word(self) -> Assignment | None:
        """Read a word; None: the statement ends."""
        blank = re.compile(r"(?:[ \t]|\\\n)*").match(self.text, self.at)
        self.at = blank.end() if blank else self.at
        if self.text.startswith("#", self.at):
            end = self.text.find("\n", self.at)
            self.at = end if end >= 0 else len(self.text)
        if self.at >= len(self.text) or self.text[self.at] in "\n;":
            self.at += 1
            return None
        line, parts = self.line, list[str]()
        while self.at < len(self.text) and self.text[self.at] not in " \t\n;":
            before = self.text[self.at - 1] if "=" in parts else ""
            is_start = before == ":" or (before == "=" and parts.count("=") == 1)  # `PATH=~/a:~/b`
            parts.append(self.part(is_start=is_start))
        name, equals, value = "".join(parts).partition("=")
        if equals:
            self.known[name] = value
            self.assigned.add(name)
        return Assignment(name + equals + value, line)

    def part(self, *, is_start: bool) -> str:
        """Read a quoted piece, a reference or one character."""
        char = self.text[self.at]
        if char == "'":
            return self.quoted("'")
        if char == '"':
            return self.quoted('"')
        if char == "$":
            return self.reference((*_OF_SHELL, "'", '"'))
        if char in _SPECIAL:
            found = next((start for start in _FIXES if self.text.startswith(start, self.at)), char)
            fix = _FIXES.get(found, "put the value into single quotes")
            raise self.refuse(f"'{found}' has a meaning in a shell", fix)
        if char == "~" and is_start:
            return self.home()
        if char == "\\":
            self.at += 2
            return self.text[self.at - 1 : self.at].replace("\n", "")
        self.at += 1
        return char

    def home(self) -> str:
        """Read `~`, alone or before a `/`."""
        self.at += 1
        if self.text[self.at : self.at + 1] not in ("", *"/: \t\n;"):
            raise self.refuse("only your own ~ is expanded", "write the whole path, or put '~' into quotes")
        return self.known.get("HOME", "~")

    def quoted(self, quote: str) -> str:
        """Read up to the closing quote. Double quotes keep `$` and some backslashes."""
        opened, parts = self.at, list[str]()
        self.open_quote = quote
        self.at += 1
        while self.at < len(self.text) and (char := self.text[self.at]) != quote:
            if quote == '"' and char == "$":
                parts.append(self.reference(_OF_SHELL))
            elif quote == '"' and char == "`":
                raise self.refuse("'`' runs a command", _NO_COMMANDS)
            elif quote == '"' and char == "\\" and self.text[self.at + 1 : self.at + 2] in ("$", "`", '"', "\\", "\n"):
                parts.append(self.text[self.at + 1].replace("\n", ""))
                self.at += 2
            else:
                parts.append(char)
                self.at += 1
        if self.at >= len(self.text):
            self.at = opened + 1
            raise self.refuse(f"the quote {quote} is not closed", f"close it, or write it as \\{quote}")
        self.at += 1
        self.open_quote = ""
        return "".join(parts)

    def reference(self, refused: tuple[str, ...]) -> str:
        """Read `$NAME`, `${NAME}` or `${NAME:-default}`. Any other `$` is itself, unless one of `refused` follows."""
        match = _REFERENCE.match(self.text, self.at)
        if not match:
            if self.text.startswith(refused, self.at + 1):
                fix = "write the value itself; a '$' that belongs to it: in single quotes"
                if re.compile(rf"\{{{_NAME}:?-").match(self.text, self.at + 1):
                    fix = "write the default as plain text, without quotes and references"
                fix = _NO_COMMANDS if self.text.startswith("(", self.at + 1) else fix
                raise self.refuse("only $NAME, ${NAME} and ${NAME:-default} are expanded", fix)
            self.at += 1
            return "$"
        name, default = match[1] or match[2], match[4] if match[3] else None
        value = self.known.get(name)
        if default is not None and (value is None or (match[3] == ":-" and not value)):
            value = default
        if value is None:
            raise self.refuse(f"{name} is not set", f"set {name}, or write ${{{name}:-default}}")
        self.at = match.end()
        return value

    def refuse(self, what: str, fix: str) -> RequestError:
        return RequestError(f"{self.path}:{self.line}: {what}", fix=fix)
