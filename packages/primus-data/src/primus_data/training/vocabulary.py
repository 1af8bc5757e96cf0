"""The tokenizer of the quickstarts: trained on the text that it is for."""

from __future__ import annotations

from typing import Any

from primus_core.errors import RequestError

__all__ = ["SMALLEST", "trained"]

SMALLEST = 258
"""Every byte, one merge, and the end of document."""


def trained(texts: list[str], size: int, special: tuple[str, ...] = ()) -> Any:
    """A byte-level BPE of exactly `size` tokens, of which the first are `special`. One of `tokenizers`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != size:
        made = tokenizer.get_vocab_size()
        raise RequestError(f"the text gives {made} tokens, not {size}", fix=_fix(made))
    return tokenizer


def _fix(made: int) -> str:
    """What to do about too little text. The step that trains a tokenizer does not know the framework."""
    if made < SMALLEST:
        return "use more text"
    smaller = f"data.vocab_size={made} model.vocab_size={made} under TorchTitan"
    others = f"data.vocab_size={made} vocab_size={made} under Megatron and MaxText"
    return f"use more text, or {smaller}\nor {others}, if the model's vocabulary can be changed"
