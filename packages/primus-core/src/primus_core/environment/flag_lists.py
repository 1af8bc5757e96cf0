"""Variables that are lists of flags (`XLA_FLAGS`): every layer says some of them, and of each flag the highest wins.

A text is read as XLA reads it: words that begin with `-`, a value behind `=`, in quotes where it holds spaces. XLA
stops at the first other word, and takes a text that begins with one for a file's name: nothing can stand beside those.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from primus_core.plan.plan import Variable

__all__ = ["FLAG_LISTS", "applied", "name_of", "together", "words"]

FLAG_LISTS = frozenset({"XLA_FLAGS"})
"""Their names."""

_SPACE = " \t\r\n"
# A quote that opens a value must close it: `*+` gives nothing of the name back to try without.
_FLAG = r"""(?s)(-[A-Za-z0-9_-]*+(?:="(?:[^"\\]|\\.)*"|='[^']*'|(?!=['"])[^ \t\r\n]*))[ \t\r\n]*"""


class _Flag(NamedTuple):
    """A flag in a layer: its words, several if the layer repeats it, and what they override."""

    layer: Variable
    words: tuple[str, ...]
    overrode: tuple[tuple[str, str], ...]


def words(text: str) -> tuple[str, ...] | None:
    """The flags of `text` as they are written; None: not all of it is flags."""
    found, at = [], len(text) - len(text.lstrip(_SPACE))
    while at < len(text):
        match = re.compile(_FLAG).match(text, at)
        if not match:
            return None
        found.append(match[1])
        at = match.end()
    return tuple(found)


def name_of(word: str) -> str:
    """The flag's name, with its dashes."""
    return word.partition("=")[0]


def applied(environ: Mapping[str, str], variables: Iterable[Variable]) -> dict[str, str]:
    """`environ` with `variables` over it, lists of flags flag by flag."""
    found = dict(environ)
    for variable in variables:
        below = Variable(variable.name, found.get(variable.name, ""), "")
        found[variable.name] = together((below, variable)).value if variable.name in FLAG_LISTS else variable.value
    return found


def together(layers: Sequence[Variable]) -> Variable:
    """One variable of what `layers` say, the lowest first; its `flags` tell whence each flag is.

    A text that is no list of flags stands alone: it wins over all below it, or loses to the next one, as it is written.
    """
    kept, hidden = _beside(layers), any(layer.secret for layer in layers)
    flags, winner = _by_flag(kept), kept[-1]
    if len(kept) == 1 or not flags:
        why = f"{winner.why}; not a list of flags, so it is not merged" if words(winner.value) is None else winner.why
        return winner._replace(why=why, overrode=_as_overrode(layers[:-1]), secret=hidden)
    return Variable(
        winner.name,
        " ".join(word for flag in flags.values() for word in flag.words),
        ", ".join(dict.fromkeys(flag.layer.origin for flag in reversed(flags.values()))),
        "for each flag, the highest layer wins",
        secret=hidden,
        source="docs/environment.md",
        overrode=_as_overrode(layers[: -len(kept)]),
        flags=() if hidden else tuple(_variable(name, flag) for name, flag in flags.items()),
    )


def _beside(layers: Sequence[Variable]) -> Sequence[Variable]:
    """The highest of `layers` that can be laid together; one, where that is no list."""
    for number in range(len(layers) - 1, -1, -1):
        if words(layers[number].value) is None:
            return layers[number + 1 :] or layers[number:]
    return layers


def _by_flag(layers: Sequence[Variable]) -> dict[str, _Flag]:
    """By flag, in the order of the layers and, within one, in its own."""
    found: dict[str, _Flag] = {}
    for layer in layers:
        own: dict[str, list[str]] = {}
        for word in words(layer.value) or ():
            own.setdefault(name_of(word), []).append(word)
        for name, mine in own.items():
            below = found.pop(name, None)
            overrode = ((_value(below.words), below.layer.origin), *below.overrode) if below else ()
            found[name] = _Flag(layer, tuple(mine), overrode)
    return found


def _variable(name: str, flag: _Flag) -> Variable:
    layer = flag.layer
    return Variable(name, _value(flag.words), layer.origin, layer.why, source=layer.source, overrode=flag.overrode)


def _value(flag: Sequence[str]) -> str:
    return " ".join(word.partition("=")[2] for word in flag)


def _as_overrode(lost: Sequence[Variable]) -> tuple[tuple[str, str], ...]:
    return tuple((layer.value, layer.origin) for layer in reversed(lost))
