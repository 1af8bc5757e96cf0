"""The word by which a person says what the GPUs are: checked where all profiles are known, also those of packages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from primus_machine import variables
from primus_machine.errors import RequestError, suggestion

__all__ = ["check"]

_NONE = "none"


def check(environ: Mapping[str, str], profiles: Callable[[], Iterable[str]]) -> None:
    """Refuse a model that nobody knows: it would silently cost a run the profile that detection has found.

    `profiles` says the names of all that are installed; it is asked only about a word that is not in the GPU table.

    Raises:
        RequestError: the word is no model, no profile, and not `none`.
    """
    name = environ.get(variables.GPU_MODEL, "").strip()
    if name.lower() not in ("", _NONE):
        _check(name, profiles)


def _check(name: str, profiles: Callable[[], Iterable[str]]) -> None:
    from primus_machine.gpus import models  # reads a table: only where a word is to be found in it
    from primus_machine.gpus.devices import VENDORS

    if models.by_name(name):
        return
    known = sorted({*profiles(), *VENDORS, *(model.name for model in models.load())})
    if name.lower() not in map(str.lower, known):
        raise RequestError(
            f"{variables.GPU_MODEL}: unknown GPU model '{name}'",
            why=f"known: {', '.join([*known, _NONE])}",
            fix=suggestion(name, known) or f"unset {variables.GPU_MODEL} to detect the model",
        )
