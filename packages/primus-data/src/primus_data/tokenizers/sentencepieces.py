"""SentencePiece models, as Megatron encodes with them: no token for the beginning, control symbols are plain text.

gigatoken takes those that change no text before the merges, such as Llama 2's: BPE with bytes for unknown characters,
no normalization, all spaces kept, no symbols of the user. It recognizes control symbols in a text, so it is given none.
Where a model normalizes, it drops U+0085 and U+FFFD, unlike sentencepiece; the library itself encodes with those.
"""

from __future__ import annotations

import json
from functools import partial

from primus_data.tokenizers.definition import Definition, contents, digest, missing
from primus_data.tokenizers.engines import GigatokenEngine, SentencePieceEngine, built
from primus_machine.errors import RequestError

__all__ = ["define"]


def define(model: str, threads: int) -> Definition:
    """The tokenizer of a model's file.

    Raises:
        RequestError: it is not there, or is none.
        MachineError: sentencepiece is not installed.
    """
    data = contents(model, "tokenizer")
    build = partial(_reference, model, data, threads)
    engine = build()
    end = engine.processor.eos_id()
    return Definition(
        vocab_size=engine.processor.get_piece_size(),
        eod=end if end >= 0 else None,
        digest=digest("sentencepiece", {"model": data}),
        reference=build,
        fast=(partial(_fast, data, build, threads),),
        specials=_specials(engine),
    )


def _reference(model: str, data: bytes, threads: int) -> SentencePieceEngine:
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError:
        raise missing("sentencepiece") from None
    processor = SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(data)
    except RuntimeError:
        why = "the library cannot parse it"  # what it says are lines of its own source
        raise RequestError(f"'{model}' is not a SentencePiece model", why=why) from None
    return SentencePieceEngine(processor, threads=threads)


def _fast(data: bytes, reference: partial[SentencePieceEngine], threads: int) -> GigatokenEngine:
    from gigatoken._load.sentencepiece import sentencepiece_to_tokenizer_json

    model = json.loads(sentencepiece_to_tokenizer_json(data))
    model["added_tokens"] = [token for token in model["added_tokens"] if not token["special"]]
    if model["added_tokens"]:
        raise ValueError("the model has symbols of the user")
    kinds = {one["type"] for one in model["normalizer"]["normalizers"]}
    if kinds - {"Prepend", "Replace"}:
        raise ValueError("the model normalizes text")
    return GigatokenEngine(partial(built, json.dumps(model)), reference, threads=threads)


def _specials(engine: SentencePieceEngine) -> list[str]:
    processor = engine.processor
    odd = (processor.is_control, processor.is_unknown, processor.is_unused, processor.is_byte)
    numbers = range(processor.get_piece_size())
    return [processor.id_to_piece(number) for number in numbers if any(test(number) for test in odd)]
