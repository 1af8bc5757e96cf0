"""What ranks print: mostly lines that were printed before, but for their digits. Nothing is to be done with those."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass

from primus_machine.output.streams import TROUBLE
from primus_machine.pipes import Channel
from primus_machine.secrets.masks import Mask
from primus_machine.secrets.rules import rules

__all__ = ["RankChannel", "SeenLines"]

_DIGITS = b"0123456789"
_REMEMBERED = 20_000


class SeenLines:
    """Remembers lines, without their digits, in which `mask` finds nothing, and nothing is for the console.

    Ranks share it, for they print the same. `metrics`: the console shows these ranks' step metrics.
    """

    def __init__(self, mask: Mask, *, metrics: bool = False) -> None:
        self._mask = mask
        self._notable = [*map(re.escape, TROUBLE), *[b"iteration "] * metrics, rb"env\."]
        self._forget()

    def _forget(self) -> None:
        self._lines = {b""}
        self._secrets = self._mask.encoded
        without = {value: value.translate(None, _DIGITS) for value in self._secrets}
        self._always = [value for value, rest in without.items() if b"\n" in value or not rest]
        values = [re.escape(rest) for value, rest in without.items() if value not in self._always]
        self._strange = re.compile(b"|".join([*self._notable, *values]))

    def strange(self, text: bytes) -> bytes:
        """The lines of `text` that were not seen before."""
        if self._secrets is not self._mask.encoded:  # a script has named further ones
            self._forget()
        plain = text.translate(None, _DIGITS).split(b"\n")
        if any(value in text for value in self._always):
            return text
        if not (unseen := {*plain} - self._lines):
            return b""
        lines = itertools.compress(text.split(b"\n"), map(unseen.__contains__, plain))
        return b"\n".join([*lines, b""])

    def learn(self, strange: bytes) -> None:
        """Remember lines in which `mask` found nothing, unless other digits could make a difference."""
        for plain in {*strange.translate(None, _DIGITS).split(b"\n")}:
            if rules().is_settled(plain) and not self._strange.search(plain):
                if len(self._lines) >= _REMEMBERED:
                    self._lines = {b""}
                self._lines.add(plain)


@dataclass(kw_only=True)
class RankChannel(Channel):
    """A pipe of a rank. `heard` gets what the console may show of it, masked, where that is not all."""

    seen: SeenLines
    heard: Callable[[bytes], None] = lambda _: None

    def _pass(self, lines: bytes) -> None:
        strange = lines if self.keys.inside else self.seen.strange(lines)
        if self.keys.inside or b"PRIVATE KEY" in strange or self.mask(strange) != strange:
            super()._pass(lines)
            return
        self.sink(lines, True)
        if strange:
            self.heard(strange)
            self.seen.learn(strange)

    def _give(self, text: bytes, whole: bool) -> None:
        self.sink(text, whole)
        self.heard(text)
