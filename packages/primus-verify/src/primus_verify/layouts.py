"""Layouts as people type them, `tp=2,pp=2`, and those that `auto` tries."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from primus_core.errors import Mistakes, RequestError, suggestion

if TYPE_CHECKING:
    from primus_verify.contract import Verifier

__all__ = [
    "AUTO",
    "AXES",
    "OWN",
    "REFERENCE",
    "WITHIN",
    "Layout",
    "choose",
    "has_own",
    "left_out",
    "parse",
    "scaled_down",
]

REFERENCE = "one rank"
OWN = "own"
AXES = {
    "dp": "replicated data parallelism",
    "fsdp": "sharded data parallelism",
    "tp": "tensor parallelism",
    "sp": "sequence parallelism, beside tp (1 or 0)",
    "pp": "pipeline parallelism",
    "vpp": "virtual stages of each pipeline rank",
    "cp": "context parallelism",
    "ep": "expert parallelism, within dp or fsdp",
    "zero": "the distributed optimizer (1 or 0)",
    "mbs": "sequences in a micro-batch",
    "recompute": "compute all activations again (1)",
    "repeat": "the reference once more: must be equal to the bit (1)",
}
_SWITCHES = {"sp": (0, 1), "zero": (0, 1), "recompute": (1,), "repeat": (1,)}
"""Axes that are on or off, and what may be written; where 0 is not, the axis is left out."""
_KEPT_SWITCHES = ("sp", "zero")
WITHIN = {"zero": ("dp", "cp"), "ep": ("dp", "fsdp"), "vpp": ("pp",)}
"""Axes that mean nothing without one of these, unless they have ranks of their own."""
AUTO = "auto"
_MORE_THAN_ONE = ("dp", "fsdp", "tp", "pp", "vpp", "cp", "ep")


class Layout(NamedTuple):
    """One way to share the work."""

    name: str
    degrees: Mapping[str, int]
    ranks: int = 1
    """How many processes, or devices, it needs; 0: a setting of the experiment that is no layout."""
    asked: bool = False
    """The person named it; it is not one of `auto`."""
    why: str = ""
    """Why it is not tried; empty: it is."""


def parse(text: str, rank_axes: Sequence[str]) -> Layout:
    """Return the layout in `tp=2,pp=2`. The degrees of `rank_axes` multiply to its ranks.

    Raises:
        RequestError: an axis is unknown, or a degree is not a positive number.
    """
    degrees: dict[str, int] = {}
    for word in text.split(","):
        axis, _, degree = word.strip().partition("=")
        if axis not in AXES:
            raise _unknown(axis, word, text)
        if axis in degrees:
            raise RequestError(f"layout '{text}' names {axis} twice", fix="name it once")
        degrees[axis] = _degree(axis, degree, text)
    if "sp" in degrees and degrees.get("tp", 1) == 1:
        raise RequestError(f"layout '{text}' has sequence parallelism without tp", fix=f"tp=2,{text}")
    return Layout(_name(degrees), degrees, _ranks(degrees, rank_axes))


def _unknown(axis: str, word: str, text: str) -> RequestError:
    """Return the error for a word that is not an axis: nothing, a setting of the training, or misspelt."""
    if not text.strip():
        return RequestError("a layout is empty", fix=f"--layouts tp=2,pp=2, {OWN} or {AUTO}")
    if not word.strip():
        fix = ",".join(part.strip() for part in text.split(",") if part.strip())
        return RequestError(f"layout '{text}' has a comma without an axis", fix=fix or f"--layouts {AUTO}")
    known = (OWN, AUTO, *AXES) if word.strip() == text.strip() and "=" not in word else tuple(AXES)
    fix = suggestion(axis, known) or f"known: {', '.join(known)}"
    if (degree := re.fullmatch(r"(.+?)(\d+)", word.strip())) and degree[1] in AXES:  # `tp2`
        fix = f"did you mean '{degree[1]}={degree[2]}'?"
    if "=" in word and not suggestion(axis, known):
        fix = f"if it is a setting: settings come before --layouts; {fix}"
    return RequestError(f"unknown axis '{axis}' in layout '{text}'", fix=fix)


def _degree(axis: str, degree: str, text: str) -> int:
    """Return the degree of an axis.

    Raises:
        RequestError: the axis cannot have it.
    """
    number = int(degree) if degree.isascii() and degree.isdigit() else -1
    if axis in _SWITCHES and number not in _SWITCHES[axis]:
        is_on_only = 0 not in _SWITCHES[axis]
        fix = f"{axis}=1" + (f", or leave {axis} out" if is_on_only else "")
        raise RequestError(f"layout '{text}': {axis} is 1{'' if is_on_only else ' or 0'}, not '{degree}'", fix=fix)
    if number < 0 or (number == 0 and axis not in _SWITCHES):
        raise RequestError(f"layout '{text}': '{degree}' is not a positive number", fix=f"{axis}=2")
    if number == 1 and axis in _MORE_THAN_ONE:
        raise RequestError(f"layout '{text}': {axis}=1 is one rank, as the reference", fix=f"{axis}=2")
    return number


def _name(degrees: Mapping[str, int]) -> str:
    return ",".join(f"{axis}={degree}" for axis, degree in degrees.items())


def _ranks(degrees: Mapping[str, int], rank_axes: Sequence[str]) -> int:
    return math.prod(degrees.get(axis, 1) for axis in rank_axes)


def choose(
    words: Sequence[str], verifier: Verifier, own: Mapping[str, int], most: int, left: Sequence[Layout] = ()
) -> list[Layout]:
    """Return the layouts that `words` name, each once; `own`: the experiment's; `auto`: that, and the verifier's.

    Layouts of `auto` have at most `most` ranks. A layout with `tp` and without `sp` has the experiment's `sp`. `left`:
    what `own` does not try (`left_out`).

    Raises:
        RequestError: for all words that are wrong.
    """
    mistakes, found = Mistakes(), dict[str, Layout]()
    scaled = scaled_down(own, verifier.rank_axes, most)
    for word in (one for text in words for one in _split(text)):
        with mistakes:
            if word == AUTO:
                texts = [text for text in (scaled, *verifier.layouts) if text]
                layouts = [one for one in (parse(text, verifier.rank_axes) for text in texts) if one.ranks <= most]
                layouts = [found.get(one.name, one) for one in layouts]
            elif word == OWN:
                layouts = [
                    parse(scaled or _own_alone(own, verifier, most, left), verifier.rank_axes)._replace(asked=True)
                ]
            else:
                layouts = [_with_sequence_parallelism(parse(word, verifier.rank_axes), own)._replace(asked=True)]
            found |= {one.name: one for one in layouts}
    mistakes.refuse()
    return list(found.values())


def _split(text: str) -> list[str]:
    """Return the layouts in one word of the shell: `"tp=2 pp=2"` are two, `"tp=2, pp=2"` is one."""
    joined = ",".join(part.strip() for part in text.split(","))
    return joined.split() or [text]


def has_own(words: Sequence[str]) -> bool:
    """Return whether the experiment's own layout is among the words, as `choose` takes them apart."""
    return any(word in (AUTO, OWN) for text in words for word in _split(text))


def _own_alone(own: Mapping[str, int], verifier: Verifier, most: int, left: Sequence[Layout]) -> NoReturn:
    """Refuse `own` for an experiment that has nothing to compare.

    Raises:
        RequestError: always.
    """
    if scaled_down(own, verifier.rank_axes, sys.maxsize):
        fix = "--max-ranks 2"
        raise RequestError(f"the experiment's own layout needs more ranks than --max-ranks {most}", fix=fix)
    if left:
        why = "\n".join(f"{one.name}: {one.why}" for one in left)
        raise RequestError("nothing of the experiment's own layout can be tried", why=why, fix=f"--layouts {AUTO}")
    raise RequestError("the experiment's own layout is one rank: nothing to compare", fix=f"--layouts {AUTO}")


def _with_sequence_parallelism(layout: Layout, own: Mapping[str, int]) -> Layout:
    """Return the layout as the experiment has it: one that needs sequence parallelism would refuse to do without."""
    if "tp" not in layout.degrees or "sp" in layout.degrees or "sp" not in own:
        return layout
    degrees = {**layout.degrees, "sp": own["sp"]}
    return layout._replace(name=_name(degrees), degrees=degrees)


def scaled_down(own: Mapping[str, int], rank_axes: Sequence[str], most: int) -> str:
    """Return the layout with degree 2 on every axis that is parallel, as far as there are ranks; empty: none is.

    It has one sequence in a micro-batch if `own` has.
    """
    degrees: dict[str, int] = {}
    for axis, degree in own.items():
        if axis in ("mbs", "recompute"):
            continue
        if axis in _KEPT_SWITCHES:
            degrees |= {axis: degree} if axis != "sp" or degrees.get("tp", 1) > 1 else {}
        elif degree > 1:
            degrees[axis] = 2
            if _ranks(degrees, rank_axes) > most:
                del degrees[axis]
    for axis, others in WITHIN.items():
        if axis not in rank_axes and not any(other in degrees for other in others):
            degrees.pop(axis, None)
    if "recompute" in own:
        degrees["recompute"] = 1
    # a dimension of size 1 is a case of its own for a framework's sharding
    if own.get("mbs", 1) > 1 or (degrees and "mbs" in own):
        degrees["mbs"] = own["mbs"]
    return _name(degrees)


def left_out(verifier: Verifier, settings: Mapping[str, Any], most: int) -> list[Layout]:
    """Return what `own` is and does not try, each with the reason: it needs more ranks, or no axis is for it."""
    own = verifier.own(settings)
    whole, tried = (scaled_down(own, verifier.rank_axes, ranks) for ranks in (sys.maxsize, most))
    found = [Layout(name, {}, 0, why=why) for name, why in verifier.unexpressed(settings).items()]
    if whole == tried:
        return found
    layout = parse(whole, verifier.rank_axes)
    why = f"it has {layout.ranks} ranks, and at most {most} are tried (--max-ranks)"
    return [layout._replace(why=f"{why}; of it, {tried} is tried" if tried else why), *found]
