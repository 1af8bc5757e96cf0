"""Token ids of the data against the model's vocabulary: over tensor-parallel ranks, Megatron masks ids that no rank has
and trains on, to losses that mean nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from primus_core.errors import MachineError
from primus_data.indexed.tokens import unknown
from primus_megatron.settings import Settings
from primus_megatron.text import DATA_PATHS, listed
from primus_megatron.vocabulary import rows, setting_for

__all__ = ["check_token_ids"]

_ENOUGH = 1 << 24
"""So many tokens of all data are looked at, half a second long."""
_FEWEST = 1 << 16
"""Of each of many prefixes."""


def check_token_ids(settings: Settings, cwd: str) -> None:
    """Refuse data that are here and have tokens that the model lacks, as far as the record or the first tokens tell.

    Raises:
        MachineError: of each such prefix, with the vocabulary that it needs.
    """
    known, found = rows(settings), dict(_prefixes(settings, cwd))
    for prefix, name in found.items() if known else ():
        with settings.mistakes:
            _check(prefix, name, known, max(_ENOUGH // len(found), _FEWEST), settings)


def _prefixes(settings: Settings, cwd: str) -> Iterator[tuple[str, str]]:
    """What is trained on and is here, and the setting that names it."""
    named = [(name, word) for name in DATA_PATHS for word in settings[name] or ()]
    for name, word in (*named, *(("data_args_path", word) for word in listed(settings))):
        prefix = os.path.join(cwd, word)
        if all(os.path.isfile(prefix + suffix) for suffix in (".bin", ".idx")):
            yield prefix, name


def _check(prefix: str, name: str, known: int, count: int, settings: Settings) -> None:
    try:
        found = unknown(prefix, known, count)
    except OSError:  # another check says what is wrong with the files
        return
    if found:
        raise MachineError(
            f"{settings.where(name)}: the data '{prefix}' cannot be trained on",
            why=f"it has the token {found.token}, but the model's vocabulary has {known} (0 to {known - 1})",
            fix=f"{setting_for(found.needed, settings)}, or name data of the model's tokenizer",
        )
