"""tiktoken's tokenizers: files of ranks (`cl100k_base.tiktoken`, Llama 3's `tokenizer.model`), and Megatron's lists.

Special tokens in a text are recognized, as Megatron calls tiktoken. In Megatron's list, ids 0 to 999 are special, then
come the ranks: 131,072 ids together, unless `vocab_size` is another number.
"""

from __future__ import annotations

import base64
import binascii
import os
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from primus_data.tokenizers.byte_level import as_json
from primus_data.tokenizers.definition import Definition, Engine, contents, digest, missing
from primus_data.tokenizers.encodings import MEGATRON, NAMES, Encoding, encoding_for
from primus_data.tokenizers.engines import GigatokenEngine, TiktokenEngine, built
from primus_machine.errors import RequestError
from primus_machine.files import plain_json

__all__ = ["define"]

_MEGATRON_SIZE, _MEGATRON_SPECIALS = 2**17, 1000
_MEGATRON_NAMES = ("<unk>", "<s>", "</s>", "<mask>", "<pad>", "<cls>", "<sep>")


class _Ranks(NamedTuple):
    tokens: Mapping[bytes, int]
    encoding: Encoding
    specials: Mapping[str, int]
    shift: int = 0
    """The id of rank 0."""


def define(model: str, threads: int, vocab_size: int) -> Definition:
    """The tokenizer of a file of ranks.

    Raises:
        RequestError: it is not there, or is none; its name does not say how to split text.
        MachineError: tiktoken is not installed.
    """
    data = contents(model, "tokenizer")
    ranks = _read(model, data, vocab_size)
    again = partial(_read_again, model, vocab_size, threads)
    return Definition(
        vocab_size=max(ranks.shift + len(ranks.tokens), *(at + 1 for at in ranks.specials.values())),
        eod=ranks.specials[ranks.encoding.end],
        digest=digest("tiktoken", {"ranks": data}, rest=[len(ranks.tokens), ranks.specials, ranks.encoding.pattern]),
        reference=partial(_reference, ranks, threads),
        fast=(partial(_fast, ranks, again, threads),),
        specials=tuple(ranks.specials),
    )


def _read(model: str, data: bytes, vocab_size: int) -> _Ranks:
    if data.lstrip()[:1] == b"[":
        rest = range(len(_MEGATRON_NAMES), _MEGATRON_SPECIALS)
        names = (*_MEGATRON_NAMES, *(f"<SPECIAL_{at}>" for at in rest))
        tokens = _listed(model, data, (vocab_size or _MEGATRON_SIZE) - len(names))
        return _Ranks(tokens, MEGATRON, {name: at for at, name in enumerate(names)}, len(names))
    tokens = _ranked(model, data)
    found = encoding_for(os.path.basename(model), len(tokens))
    if found is None:
        what = f"the name of '{model}' does not say how it splits text"
        raise RequestError(what, fix=f"put one of these names into that of the file: {', '.join(NAMES)}")
    return _Ranks(tokens, found, {name: len(tokens) + at for name, at in found.specials.items()})


def _read_again(model: str, vocab_size: int, threads: int) -> TiktokenEngine:
    return _reference(_read(model, contents(model, "tokenizer"), vocab_size), threads)


def _reference(ranks: _Ranks, threads: int) -> TiktokenEngine:
    try:
        from tiktoken import Encoding as Tiktoken
    except ImportError:
        raise missing("tiktoken") from None
    shifted = {token: rank + ranks.shift for token, rank in ranks.tokens.items()}
    pattern, specials = ranks.encoding.pattern, dict(ranks.specials)
    built = Tiktoken("ranks", pat_str=pattern, mergeable_ranks=shifted, special_tokens=specials)
    return TiktokenEngine(built, threads=threads)


def _fast(ranks: _Ranks, again: Callable[[], Engine], threads: int) -> GigatokenEngine:
    if not ranks.encoding.scheme:
        json = as_json(ranks.tokens, ranks.encoding.pattern, ranks.specials)
        return GigatokenEngine(partial(built, json), again, threads=threads)
    # It takes ranks from 0 only: special tokens that come first go behind, and the ids are rotated back.
    size = len(ranks.tokens)
    specials = {name: at + size if ranks.shift else at for name, at in ranks.specials.items()}
    lines = b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in ranks.tokens.items())
    build = partial(_by_scheme, lines, ranks.encoding.scheme, specials)
    rotated = (ranks.shift, size + ranks.shift) if ranks.shift else (0, 0)
    return GigatokenEngine(build, again, threads=threads, rotated=rotated)


def _by_scheme(lines: bytes, scheme: str, specials: dict[str, int]) -> Any:
    """Gigatoken's tokenizer of a file of ranks, which it reads by its path alone."""
    from gigatoken import Tokenizer

    with tempfile.NamedTemporaryFile("wb", suffix=".tiktoken") as file:
        file.write(lines)
        file.flush()
        return Tokenizer.from_tiktoken(file.name, scheme, specials)


def _ranked(model: str, data: bytes) -> dict[bytes, int]:
    """Lines of a token in base64, and its rank."""
    try:
        rows = (line.split() for line in data.splitlines() if line)
        found = {base64.b64decode(token, validate=True): int(rank) for token, rank in rows}
    except (ValueError, binascii.Error) as error:
        raise RequestError(f"'{model}' is not a file of ranks of tiktoken", why=str(error)) from None
    return _whole(model, found)


def _listed(model: str, data: bytes, size: int) -> dict[bytes, int]:
    """Megatron's list: `[{"rank": 0, "token_bytes": "AA==", "token_str": "..."}, ...]`."""
    try:
        rows = plain_json.loads(data)[: max(size, 0)]
        found = {base64.b64decode(row["token_bytes"], validate=True): int(row["rank"]) for row in rows}
    except (ValueError, TypeError, KeyError, OverflowError, binascii.Error) as error:
        raise RequestError(f"'{model}' is not a list of ranks of Megatron", why=repr(error)) from None
    if len(found) != size:
        fix = f"pass --vocab-size {len(found) + _MEGATRON_SPECIALS}"
        raise RequestError(f"'{model}' has {len(found)} ranks, but {size} are expected", fix=fix)
    return _whole(model, found)


def _whole(model: str, ranks: dict[bytes, int]) -> dict[bytes, int]:
    """The ranks, if every byte has one, and all have different ones."""
    why = ""
    if lacking := [byte for byte in range(256) if bytes([byte]) not in ranks]:
        why = f"byte {lacking[0]} has no rank"
    elif sorted(ranks.values()) != list(range(len(ranks))):
        why = f"the ranks are not the numbers from 0 to {len(ranks) - 1}"
    if why:
        raise RequestError(f"'{model}' is not a file of ranks of tiktoken", why=why)
    return ranks
