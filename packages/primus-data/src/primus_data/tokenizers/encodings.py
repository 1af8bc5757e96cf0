"""What a file of ranks does not say: how text is split before, and which special tokens there are.

Sources: `tiktoken_ext/openai_public.py` of tiktoken 0.14, and Llama 3's `tokenizer.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["MEGATRON", "NAMES", "Encoding", "encoding_for"]

_R50K = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
_CL100K = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"""
    r"""|\s+(?!\S)|\s"""
)
_LLAMA3 = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"""
    r"""|\s+(?!\S)|\s+"""
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_WORD = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{{0}}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{{0}}|"
_O200K = _WORD.replace("{0}", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?") + (
    r"""\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
_MEGATRON_V2 = _WORD.replace("{0}", "") + r"""\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"""


class Encoding(NamedTuple):
    """A way to split, with special tokens."""

    pattern: str
    scheme: str
    """The same split, by gigatoken's name; empty: it knows the pattern. The ids are compared before it is used."""
    specials: Mapping[str, int]
    """By their distance from the number of ranks: so they fit smaller vocabularies of the same kind, too."""
    end: str
    """The one that ends a document."""


def _llama3() -> dict[str, int]:
    first = ("<|begin_of_text|>", "<|end_of_text|>")
    names = {6: "<|start_header_id|>", 7: "<|end_header_id|>", 9: "<|eot_id|>"}
    reserved = (f"<|reserved_special_token_{number}|>" for number in range(251))
    rest = (names[at] if at in names else next(reserved) for at in range(len(first), 256))
    return {name: at for at, name in enumerate((*first, *rest))}


_END = "<|endoftext|>"
_FIM = {"<|fim_prefix|>": 2, "<|fim_middle|>": 3, "<|fim_suffix|>": 4}
_BY_NAME = {
    "r50k_base": Encoding(_R50K, "gpt2", {_END: 0}, _END),
    "cl100k_base": Encoding(_CL100K, "gpt4", {_END: 1, **_FIM, "<|endofprompt|>": 20}, _END),
    "o200k_base": Encoding(_O200K, "o200k", {_END: 1, "<|endofprompt|>": 20}, _END),
    "llama3": Encoding(_LLAMA3, "", _llama3(), "<|end_of_text|>"),
}
NAMES = tuple(_BY_NAME)
MEGATRON = Encoding(_MEGATRON_V2, "nemotron", {}, "</s>")
"""Megatron's own format: a JSON list of ranks, with its default split (`v2`)."""
_META_NAME, _META_RANKS = "tokenizer.model", 128_000
"""The file of Llama 3 as Meta publishes it."""


def encoding_for(name: str, ranks: int) -> Encoding | None:
    """The encoding that a file's name holds; None: there is none."""
    if name == _META_NAME and ranks == _META_RANKS:
        return _BY_NAME["llama3"]
    return next((found for key, found in _BY_NAME.items() if key in name), None)
