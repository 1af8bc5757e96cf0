"""Layouts as people type them, `tp=2,pp=2`, and those that `auto` tries."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from primus_core.errors import Mistakes, RequestError, suggestion

if TYPE_CHECKING:
    from primus_verify.contract import Verifier

__all__ = ["AXES", "OWN", "REFERENCE", "Layout", "choose", "left_out", "parse", "scaled_down"]

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
_SWITCHES = ("sp", "zero")
_WITHIN = {"zero": ("dp", "cp"), "ep": ("dp", "fsdp"), "vpp": ("pp",)}
"""Axes that mean nothing without one of these, unless they have ranks of their own."""
_MORE_THAN_ONE = ("dp", "fsdp", "tp", "pp", "vpp", "cp", "ep")


class Layout(NamedTuple):
    """One way to share the work."""

    name: str
    degrees: Mapping[str, int]
    ranks: int = 1
    """How many processes, or devices, it needs; 0: a setting of the experiment that is no layout."""
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
            known = suggestion(axis, AXES) or f"known: {', '.join(AXES)}"
            raise RequestError(f"unknown axis '{axis}' in layout '{text}'", fix=known)
        if not (degree.isascii() and degree.isdigit()) or int(degree) < (axis not in _SWITCHES):
            raise RequestError(f"layout '{text}': '{degree}' is not a positive number", fix=f"{axis}=2")
        if axis in degrees:
            raise RequestError(f"layout '{text}' names {axis} twice", fix="name it once")
        if int(degree) == 1 and axis in _MORE_THAN_ONE:
            raise RequestError(f"layout '{text}': {axis}=1 is one rank, as the reference", fix=f"{axis}=2")
        degrees[axis] = int(degree)
    if "sp" in degrees and degrees.get("tp", 1) == 1:
        raise RequestError(f"layout '{text}' has sequence parallelism without tp", fix=f"tp=2,{text}")
    return Layout(_name(degrees), degrees, _ranks(degrees, rank_axes))


def _name(degrees: Mapping[str, int]) -> str:
    return ",".join(f"{axis}={degree}" for axis, degree in degrees.items())


def _ranks(degrees: Mapping[str, int], rank_axes: Sequence[str]) -> int:
    return math.prod(degrees.get(axis, 1) for axis in rank_axes)


def choose(words: Sequence[str], verifier: Verifier, own: Mapping[str, int], most: int) -> list[Layout]:
    """Return the layouts that `words` name, each once; `own`: the experiment's; `auto`: that, and the verifier's.

    Layouts of `auto` have at most `most` ranks.

    Raises:
        RequestError: for all words that are wrong.
    """
    mistakes, found = Mistakes(), dict[str, Layout]()
    for word in words:
        with mistakes:
            scaled = scaled_down(own, verifier.rank_axes, most)
            texts = {"auto": [scaled, *verifier.layouts], OWN: [scaled]}.get(word, [word])
            layouts = [parse(text, verifier.rank_axes) for text in texts if text]
            found |= {one.name: one for one in layouts if word != "auto" or one.ranks <= most}
    mistakes.refuse()
    return list(found.values())


def scaled_down(own: Mapping[str, int], rank_axes: Sequence[str], most: int) -> str:
    """Return the layout with degree 2 on every axis that is parallel, as far as there are ranks; empty: none is.

    It has one sequence in a micro-batch if `own` has.
    """
    degrees: dict[str, int] = {}
    for axis, degree in own.items():
        if axis in ("mbs", "recompute"):
            continue
        if axis in _SWITCHES:
            degrees |= {axis: degree} if axis != "sp" or degrees.get("tp", 1) > 1 else {}
        elif degree > 1:
            degrees[axis] = 2
            if _ranks(degrees, rank_axes) > most:
                del degrees[axis]
    for axis, others in _WITHIN.items():
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
    found = [Layout(name, {}, 0, why) for name, why in verifier.unexpressed(settings).items()]
    if whole == tried:
        return found
    layout = parse(whole, verifier.rank_axes)
    why = f"it has {layout.ranks} ranks, and at most {most} are tried (--max-ranks)"
    return [layout._replace(why=f"{why}; of it, {tried} is tried" if tried else why), *found]
