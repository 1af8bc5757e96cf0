"""Finds secrets in a text by their shape, or by what stands before them. Which ones is data: `data/secrets/`.

Most of a log holds none, and must cost little: a pattern is tried only around a long word, or a keyword of its own.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from primus_machine.secrets.names import says_secret

__all__ = ["BEGIN_KEY", "END_KEY", "Rule", "Rules", "rules"]

Span = tuple[int, int]

_SHORTEST = 13
"""What looks like a token has so many letters, digits, `-`, `_` or `~` in a row."""
_WORD = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-~")
_LETTERS = bytes(ord("x" if letter in _WORD else " ") for letter in range(256))
_BEFORE, _BEHIND, _FARTHEST = 90, 60, 4096
"""How far around a long word a keyword is looked for, and how far a token may reach."""
_REMEMBERED = 20_000
_SHARE, _DRAWN = 0.12, 3.8
"""Of letters that are drawn by lot, a quarter of the pairs are two capitals; bits of each letter."""
_FEW = 16
_DIGITS = b"0123456789"
_LOWER = bytes(range(256)).lower()
_PLAIN_WORD = re.compile(
    rb"(?=[^A-Za-z]*[A-Za-z]|[_~-]+\Z)[_~-]*(?:(?:[A-Za-z]+|\d+)(?:[_~-]+(?:[A-Za-z]+|\d+))*[_~-]*)?"
)
"""`tokens_per_second`, `shard-00001-of-00099`, `-----`: of what is random, letters and digits are mixed."""
_UNFINISHED = re.compile(rb"(?<![A-Za-z0-9_~+/.=:@?&;-])[A-Za-z0-9_~+/.=:@?&;-]{1,4096}\Z")
_LINE = 2000
"""A longer line is not remembered."""

BEGIN_KEY = re.compile(rb"-----BEGIN[ A-Z0-9_-]{0,40}PRIVATE KEY(?: BLOCK)?-----")
"""The first line of a private key, and ..."""
END_KEY = re.compile(rb"-----END[ A-Z0-9_-]{0,40}PRIVATE KEY(?: BLOCK)?-----")
"""... its last one."""
_LONGEST_KEY = 32 << 10
_KEY_LINES = re.compile(rb"(?:\r?\n[+ -]?[\s>#|\"']*[A-Za-z0-9+/=:,. -]{16,120}[\"',\\]*)*")
_KEY_LINE_BEGIN = re.compile(rb"[+ -]?[\s\"'>#|]*+(?:\\++[nr])*+")
"""What is before a line of a key: the sign of a diff, quotes, ends of lines as JSON writes them."""
_KEY_LINE_END = b"\"', \t\r\f\v\\"


class Rule(NamedTuple):  # hundreds are made wherever a text is filtered, and a tuple takes a third of the time
    """One kind of secret."""

    id: str
    keywords: tuple[bytes, ...]
    pattern: str
    scope: str = "word"
    group: int = 0
    """The group that is the secret; 0: the first that matches, or all of it."""
    name: int = 0
    """The group that must be the name of a secret (`secret_names`), or 0."""
    head: str = ""
    """A line without it, in lower case and without its digits, holds no such secret. `\\Z`: an unfinished line."""
    entropy: float = 0.0
    digit: bool = True
    mixed: bool = False
    """Instead of a digit, capitals and small letters may be mixed as in no name of a program."""

    @property
    def compiled(self) -> re.Pattern[bytes]:
        """The pattern; compiled where a text first has a keyword."""
        return _compiled(self.pattern)

    @property
    def is_number(self) -> bool:
        """Whether the secret has digits only."""
        return "([0-9]{" in self.pattern

    def spans(self, text: bytes, start: int, end: int) -> Iterator[Span]:
        """Where `text` holds such secrets, between `start` and `end`."""
        while match := self.compiled.search(text, start, end):
            if self.name and not says_secret(match[self.name].decode("ascii", "ignore")):
                start = match.end(self.name)  # what follows may be a name itself: `info: token=...`
                continue
            group = self.group or next((n for n, found in enumerate(match.groups(), 1) if found), 0)
            if self.scope == "line" or self._is_random(match[group]):
                yield match.span(group)
            start = max(match.end(), start + 1)

    def may_be_in(self, plain: bytes) -> bool:
        """Whether a line may hold such a secret, by what is left of it in lower case and without its digits.

        A zero byte at its end says that it is finished.
        """
        return not self.head or bool(_compiled(self.head).search(plain))

    def _is_random(self, secret: bytes) -> bool:
        has_digit = not self.digit or any(48 <= letter <= 57 for letter in secret) or (self.mixed and _is_mixed(secret))
        return has_digit and (not self.entropy or _entropy(secret) > self.entropy)


def _is_mixed(secret: bytes) -> bool:
    """Return whether a text without digits looks drawn by lot: in `MyLongName`, no two capitals follow each other."""
    pairs = list(itertools.pairwise(secret))
    kinds = (bytes.isupper, bytes.islower)
    shares = (sum(is_kind(bytes((one,))) and is_kind(bytes((other,))) for one, other in pairs) for is_kind in kinds)
    return all(share > _SHARE * len(pairs) for share in shares) and _entropy(secret) > _DRAWN


@functools.cache
def _compiled(pattern: str) -> re.Pattern[bytes]:
    return re.compile(pattern.encode())


def _entropy(text: bytes) -> float:
    """Bits per letter, after Shannon."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


class Rules:
    """All kinds of secrets, asked together."""

    def __init__(self, known: Iterable[Rule]) -> None:
        self.all = tuple(known)
        self._by_keyword: dict[str, dict[bytes, list[Rule]]] = {"word": {}, "line": {}}
        for rule in self.all:
            for keyword in rule.keywords:
                self._by_keyword[rule.scope].setdefault(keyword, []).append(rule)
        # Logs repeat themselves: long words, lines of which no "line" rule is asked, and lines that turned out to hold
        # no secret at all, each without its digits. A token's letters do not come again by chance; some have none.
        self._harmless: set[bytes] = set()
        self._plain: set[bytes] = set()
        self._settled: set[bytes] = set()
        numbers = (keyword for rule in self.all if rule.is_number for keyword in rule.keywords)
        self._unsettled = (b"private key", *numbers)

    def masked(self, text: bytes, marker: bytes) -> bytes:
        """`text` with `marker` in the place of each secret."""
        plain = text.translate(_LOWER, _DIGITS).split(b"\n")
        if self._settled.issuperset(plain):
            return text
        spans = sorted({*self.keys(text), *self._in_new_lines(text, plain)})
        if not spans:
            return text
        parts, at = [], 0
        for start, end in spans:
            if start >= at:
                parts += [text[at:start], marker]
            at = max(at, end)
        return b"".join([*parts, text[at:]])

    def _in_new_lines(self, text: bytes, plain: Sequence[bytes]) -> Iterator[Span]:
        """Secrets in the lines that are not settled. `plain`: all lines, in lower case and without their digits.

        Of lines that differ in their digits alone, one is looked at first: mostly, it settles the others.
        """
        lines = text.split(b"\n")
        one_of_each = [n for line, n in dict(zip(plain, itertools.count())).items() if line not in self._settled]
        yield from self._in_those(one_of_each, lines, plain)
        others = {n for n, line in enumerate(plain) if line not in self._settled}.difference(one_of_each)
        if others:
            yield from self._in_those(others, lines, plain)

    def _in_those(self, strange: Iterable[int], lines: Sequence[bytes], plain: Sequence[bytes]) -> Iterator[Span]:
        """Secrets in the lines with these numbers."""
        new = sorted({*strange, *(number - 1 for number in strange if number)})  # some rules ask for the line before
        part = b"\n%b\n" % b"\n".join([lines[number] for number in new])
        ends = list(itertools.accumulate(map(len, lines)))
        for start, end in (*self.in_lines(part), *self.words(part)):
            number = new[part.count(b"\n", 0, start) - 1]
            moved = ends[number] + number - part.find(b"\n", start)
            yield start + moved, end + moved
        unsettled = _those_in(b"\n".join([plain[number] for number in new]), self._unsettled)
        for number in new:
            if self._is_harmless(plain[number], lines[number], unsettled):
                _remember(self._settled, plain[number])

    def _is_harmless(self, plain: bytes, line: bytes, unsettled: Sequence[bytes]) -> bool:
        """Whether nothing is to be looked for in `line` any more, whatever its digits."""
        return (
            plain in self._plain
            and not any(word in plain for word in unsettled)
            and all(line[start:end].translate(None, _DIGITS) in self._harmless for start, end in _long_words(line))
        )

    def is_settled(self, plain: bytes) -> bool:
        """Whether a line like this, which is without its digits, held no secret and will hold none."""
        return plain.lower() in self._settled

    def begun(self, line: bytes) -> int:
        """How many bytes at the end of an unfinished line may turn out to be a secret when the rest has come."""
        end = line[-_FARTHEST:].lower()
        near = {b"-----begin": [], **self._by_keyword["word"], **self._by_keyword["line"]}
        plain = end.translate(None, _DIGITS)
        for keyword, asked in near.items():
            if len(keyword) > 2 and keyword in end and (not asked or any(rule.may_be_in(plain) for rule in asked)):
                return len(end)
        found = _UNFINISHED.search(line)
        return len(found[0]) if found else 0

    def words(self, text: bytes) -> Iterator[Span]:
        """Tokens that show by their shape, alone or beside the name of who gives them out."""
        lower = b""
        present: Collection[bytes] = ()  # of hundreds, most texts have none or a few
        for start, end in _long_words(text):
            word = text[start:end].translate(None, _DIGITS)
            if word in self._harmless:
                continue
            if not lower:
                lower = text.lower()
                present = _those_in(lower, self._by_keyword["word"])
            near = lower[max(start - _BEFORE, 0) : end + _BEHIND]
            found = list(self._around(text, lower, start, end, present)) if any(map(near.__contains__, present)) else []
            yield from found
            if not found and _PLAIN_WORD.fullmatch(text, start, end):
                _remember(self._harmless, word)

    def _around(self, text: bytes, lower: bytes, start: int, end: int, keywords: Collection[bytes]) -> Iterator[Span]:
        first = max(start - _BEFORE, text.rfind(b"\n", 0, start), 0)  # with the end of the line before: some ask for it
        last = text.find(b"\n", end)
        last = min(end + _FARTHEST, len(text) if last < 0 else last)
        near = lower[first : min(end + _BEHIND, last)]
        for keyword in _those_in(near, keywords):
            for rule in self._by_keyword["word"][keyword]:
                yield from rule.spans(text, first, last)

    def in_lines(self, text: bytes) -> Iterator[Span]:
        """Secrets that follow something: a scheme, the name of a header, `password=`."""
        lower = text.translate(_LOWER, _DIGITS)
        lines = lower.split(b"\n")
        if self._plain.issuperset(lines):
            return
        present = _those_in(lower, self._by_keyword["line"])
        start = 0
        for plain, line in zip(lines, text.split(b"\n"), strict=True):
            if plain not in self._plain:
                yield from self._in_line(text, plain, start, start + len(line), present)
            start += len(line) + 1

    def _in_line(self, text: bytes, plain: bytes, start: int, end: int, keywords: Collection[bytes]) -> Iterator[Span]:
        known = self._by_keyword["line"]
        near = dict.fromkeys(rule for keyword in _those_in(plain, keywords) for rule in known[keyword])
        asked = [rule for rule in near if rule.may_be_in(plain + b"\0")]
        for rule in asked:
            yield from rule.spans(text, start, end)
        if not asked and len(plain) <= _LINE:
            _remember(self._plain, plain)

    def keys(self, text: bytes) -> Iterator[Span]:
        """What stands between the first and the last line of a private key, line by line."""
        if b"PRIVATE KEY" not in text:
            return
        for begin in BEGIN_KEY.finditer(text):
            end = END_KEY.search(text, begin.end(), begin.end() + _LONGEST_KEY)
            last = end.start() if end else _end_of_lines(text, begin.end())
            at = begin.end()
            for line in text[at:last].split(b"\n"):
                start, stop = _key_in(line)
                if start < stop:
                    yield at + start, at + stop
                at += len(line) + 1


def _key_in(line: bytes) -> Span:
    """Where a line's part of a key begins and ends. A pattern for both ends takes time that grows exponentially."""
    found = _KEY_LINE_BEGIN.match(line)
    start, stop = found.end() if found else 0, len(line)
    while stop > start and (line[stop - 1] in _KEY_LINE_END or (line[stop - 1] in b"nr" and line[stop - 2] in b"\\")):
        stop -= 1
    return start, stop


def _long_words(text: bytes) -> Iterator[Span]:
    """Where as many letters as a token has follow each other."""
    letters, end = text.translate(_LETTERS), 0
    while (start := letters.find(b"x" * _SHORTEST, end)) >= 0:
        end = letters.find(b" ", start)
        end = len(text) if end < 0 else end
        yield start, end


def _remember(known: set[bytes], text: bytes) -> None:
    if len(known) >= _REMEMBERED:
        known.clear()
    known.add(text)


def _those_in(text: bytes, keywords: Collection[bytes]) -> list[bytes]:
    """The keywords in `text`, which is in lower case."""
    if (
        len(keywords) > _FEW and len(text) > _LINE
    ):  # most have a pair of letters that the text lacks, which costs less to see
        pairs = {*_in_twos(text), *_in_twos(text[1:])}
        keywords = [one for one in keywords if _pairs(one) <= pairs]
    return [one for one in keywords if one in text]


@functools.cache
def _pairs(keyword: bytes) -> frozenset[int]:
    return frozenset((*_in_twos(keyword), *_in_twos(keyword[1:])))


def _in_twos(text: bytes) -> memoryview:
    """Two letters each, as a number."""
    return memoryview(text)[: len(text) // 2 * 2].cast("H")


def _end_of_lines(text: bytes, start: int) -> int:
    found = _KEY_LINES.match(text, start)
    return found.end() if found else start


@functools.cache
def rules() -> Rules:
    """Those of `data/secrets/rules.json`."""
    import json  # only a text that is filtered needs it

    with open(f"{os.path.dirname(os.path.dirname(__file__))}/data/secrets/rules.json", "rb") as file:
        rows = json.load(file)
    return Rules(Rule(**{**row, "keywords": tuple(word.encode() for word in row["keywords"])}) for row in rows)
