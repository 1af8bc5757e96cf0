"""Blend prefixes: the weight of each, and how often each is repeated while a number of tokens is trained on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from primus_data.indexed import layout
from primus_data.indexed.described import expect_one_tokenizer
from primus_data.indexed.nearby import correct_prefix
from primus_machine.errors import MachineError, Mistakes, RequestError

__all__ = ["Blend", "Source", "blend"]


class Source(NamedTuple):
    """One prefix of a blend."""

    prefix: str
    tokens: int
    weight: float
    """The weights of a blend add up to 1."""
    drawn: int
    """Tokens of it that are trained on; 0: it was not said how many are trained on."""

    @property
    def epochs(self) -> float:
        """How often each of its tokens is trained on."""
        return self.drawn / self.tokens


class Blend(NamedTuple):
    """All of them."""

    sources: tuple[Source, ...]
    tokens: int
    """Trained on; 0: it was not said."""

    @property
    def words(self) -> list[float | str]:
        """As Megatron's `data_path` has it: a weight before each prefix."""
        return [word for one in self.sources for word in (one.weight, one.prefix)]

    def repeated(self, times: float) -> list[Source]:
        """Those whose tokens are trained on more often than that."""
        return [one for one in self.sources if one.epochs > times]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        shown = [one._asdict() | {"epochs": one.epochs if self.tokens else None} for one in self.sources]
        return {"tokens": self.tokens, "sources": shown, "data_path": self.words}


def blend(given: Sequence[tuple[str, float | None]], *, temperature: float, tokens: int) -> Blend:
    """The blend of these prefixes. Without weights, a weight is proportional to the tokens ** (1 / temperature).

    Raises:
        RequestError: there is no such prefix.
        MachineError: it cannot be trained on.
    """
    mistakes, sizes = Mistakes(), []
    for prefix, _ in given:
        with mistakes:
            sizes.append(_tokens(prefix))
    with mistakes:
        expect_one_tokenizer([prefix for prefix, _ in given])
    mistakes.refuse()
    weights = [weight or size ** (1 / temperature) for (_, weight), size in zip(given, sizes, strict=True)]
    shares = [float(f"{weight / sum(weights):.9g}") for weight in weights]
    return Blend(
        tuple(
            Source(os.path.abspath(prefix), size, share, round(share * tokens))
            for (prefix, _), size, share in zip(given, sizes, shares, strict=True)
        ),
        tokens,
    )


def _tokens(prefix: str) -> int:
    try:
        with open(f"{prefix}.bin", "rb", opener=layout.regular):
            found = layout.read(prefix)
        why = found if isinstance(found, str) else layout.fault(prefix)
    except FileNotFoundError as error:
        raise RequestError(f"file '{error.filename}' not found", fix=correct_prefix(prefix)) from None
    except OSError as error:
        raise MachineError(f"'{error.filename or prefix}' cannot be read", why=str(error.strerror)) from None
    if why or isinstance(found, str):
        raise MachineError(f"the data '{prefix}' cannot be trained on", why=why, fix="see `primus data verify`")
    return os.path.getsize(f"{prefix}.bin") // found.width
