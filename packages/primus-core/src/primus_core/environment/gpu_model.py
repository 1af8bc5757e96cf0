"""The word by which a person says what the GPUs are: checked where all profiles are known, also those of packages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from primus_core import variables
from primus_core.errors import RequestError, suggestion

__all__ = ["check"]

_NONE = "none"


def check(environ: Mapping[str, str], profiles: Callable[[], Iterable[str]]) -> None:
    """Refuse a model that nobody knows: it would silently cost a run the profile that detection has found.

    `profiles` says the names of all that are installed; it is asked only about a word that is not in the GPU table.

    Raises:
        RequestError: the word is no model, no profile, and not `none`.
    """
    said = environ.get(variables.GPU_MODEL, "").strip()
    if said.lower() not in ("", _NONE):
        _check(said, profiles)


def _check(said: str, profiles: Callable[[], Iterable[str]]) -> None:
    from primus_core.machine import gpus  # reads a table: only where a word is to be found in it
    from primus_core.machine.devices import VENDORS

    if gpus.by_name(said):
        return
    known = sorted({*profiles(), *VENDORS, *(model.name for model in gpus.load())})
    if said.lower() not in map(str.lower, known):
        raise RequestError(
            f"{variables.GPU_MODEL}: no GPU model is called '{said}'",
            why=f"known: {', '.join([*known, _NONE])}",
            fix=suggestion(said, known) or f"unset {variables.GPU_MODEL}: then the model is detected",
        )
