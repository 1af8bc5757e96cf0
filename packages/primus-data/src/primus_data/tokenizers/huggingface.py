"""Tokenizers of Hugging Face: `tokenizer.json` as transformers loads it for Megatron, and GPT-2's two files.

As Megatron does: special tokens in a text are recognized, what the post-processor adds is added (Llama 3: the token
that begins a text), nothing is cut off, and tokens that only `tokenizer_config.json` names are added to the vocabulary.
transformers 5 builds some of its classes (`LlamaTokenizer`) from the vocabulary and merges alone; here, the normalizer
and the pre-tokenizer of the file count for them, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from primus_data.tokenizers.definition import Definition, contents, digest
from primus_data.tokenizers.engines import GigatokenEngine, TiktokenEngine, TokenizersEngine, built
from primus_data.tokenizers.kept import Kept
from primus_machine.errors import RequestError
from primus_machine.files import plain_json

__all__ = ["define", "define_gpt2"]

_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""In transformers' order: so are tokens added that the vocabulary lacks."""
_ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>")
"""What ends a document where no file beside `tokenizer.json` says it, if a tokenizer has one of them."""
_GPT2_END = "<|endoftext|>"


class _Facts(NamedTuple):
    """What is known of a tokenizer once it was loaded."""

    vocab_size: int
    eod: int | None
    before: list[int]
    """The ids that the post-processor puts before each text."""
    after: list[int]
    specials: list[str]


class _Source(NamedTuple):
    """Where a tokenizer comes from."""

    digest: str
    load: Callable[[], Any]
    json: str | bytes
    """The same as `tokenizer.json`."""
    is_split: bool = False
    """Special tokens in a text are plain text."""


def define(model: str, threads: int) -> Definition:
    """The tokenizer in a folder, or a `tokenizer.json`.

    Raises:
        RequestError: it is not there, or is no such tokenizer.
    """
    path = _file_in(model) if os.path.isdir(model) else model
    data = contents(path, "tokenizer")
    wanted = _wanted(_settings(path))
    source = _Source(
        digest("huggingface", {"tokenizer.json": data}, settings=wanted), partial(_only, path, wanted), data,
        is_split=wanted.get("split_special_tokens") is True,
    )  # fmt: skip
    if facts := _read(kept := Kept("facts", source.digest)):
        return _definition(source, facts, threads)
    tokenizer, changes = _from_json(data, path, wanted)
    facts = _facts(tokenizer, wanted)
    if changes:  # to write it takes a quarter of a second for a large vocabulary
        return _definition(source._replace(json=tokenizer.to_str()), facts, threads)
    kept.write(facts._asdict())
    return _definition(source, facts, threads, tokenizer)


def _read(kept: Kept) -> _Facts | None:
    try:
        return _Facts(**kept.read())
    except TypeError:  # there are none
        return None


def define_gpt2(model: str, merges: str, threads: int) -> Definition:
    """GPT-2's `vocab.json` and `merges.txt`; `model` is the first, or the folder of both.

    Raises:
        RequestError: one of them is not there, or both are no such tokenizer.
    """
    vocab = os.path.join(model, "vocab.json") if os.path.isdir(model) else model
    merges = merges or os.path.join(os.path.dirname(vocab), "merges.txt")
    files = {"vocab": contents(vocab, "vocabulary"), "merges": contents(merges, "file of merges")}
    wanted = {"eos_token": _GPT2_END}
    load = partial(_from_merges, vocab, merges)
    tokenizer = load()
    source = _Source(digest("huggingface", files, settings=wanted), load, tokenizer.to_str())
    return _definition(source, _facts(tokenizer, wanted), threads, tokenizer)


def _facts(tokenizer: Any, wanted: Mapping[str, Any]) -> _Facts:
    end = _end(tokenizer, wanted)
    return _Facts(
        tokenizer.get_vocab_size(),
        tokenizer.token_to_id(end) if end else None,
        *_around(tokenizer),
        specials=[token.content for token in tokenizer.get_added_tokens_decoder().values()],
    )


def _definition(source: _Source, facts: _Facts, threads: int, loaded: Any = None) -> Definition:
    again = partial(_reference, source.load)
    waiting = [TokenizersEngine(loaded)] if loaded else []
    around = (facts.before, facts.after)
    return Definition(
        vocab_size=facts.vocab_size,
        eod=facts.eod,
        digest=source.digest,
        # The first call hands out the one that is loaded: two of them take 100 MB more.
        reference=lambda: waiting.pop() if waiting else again(),
        fast=() if source.is_split else tuple(
            partial(build, source.json, again, threads, around) for build in (_fast, _by_tiktoken)
        ),
        specials=facts.specials,
    )  # fmt: skip


def _reference(load: Callable[[], Any]) -> TokenizersEngine:
    return TokenizersEngine(load())


def _fast(
    json: str | bytes,
    again: Callable[[], TokenizersEngine],
    threads: int,
    around: tuple[Sequence[int], Sequence[int]],
) -> GigatokenEngine:
    return GigatokenEngine(partial(built, json), again, threads=threads, around=around)


def _by_tiktoken(
    json: str | bytes,
    again: Callable[[], TokenizersEngine],
    threads: int,
    around: tuple[Sequence[int], Sequence[int]],
) -> TiktokenEngine:
    from primus_data.tokenizers import word_split

    encoding = word_split.encoding(json, again())
    return TiktokenEngine(encoding, threads=threads, around=around, reference=again)


def _file_in(folder: str) -> str:
    """The `tokenizer.json` of a folder, or what else it holds."""
    if os.path.exists(path := os.path.join(folder, "tokenizer.json")):
        return path
    others = (("merges.txt", "GPT2BPETokenizer"), ("tokenizer.model", "SentencePieceTokenizer or TikTokenizer"))
    fix = "".join(f"for {name}, use --tokenizer-type {kind}" for name, kind in others if _is_in(folder, name))
    raise RequestError(f"folder '{folder}' has no tokenizer.json", fix=fix)


def _is_in(folder: str, name: str) -> bool:
    return os.path.exists(os.path.join(folder, name))


def _settings(path: str) -> dict[str, Any]:
    """What `tokenizer_config.json` beside it says, and for older ones, `special_tokens_map.json`."""
    if os.path.basename(path) != "tokenizer.json":
        return {}
    folder = os.path.dirname(path)
    found = _mapping(os.path.join(folder, "tokenizer_config.json"))
    if "added_tokens_decoder" not in found:
        found |= _mapping(os.path.join(folder, "special_tokens_map.json"))
    return found


def _mapping(path: str) -> dict[str, Any]:
    if not os.path.exists(path):
        return {}
    try:
        found = plain_json.loads(contents(path, "file"))
    except ValueError as error:
        raise RequestError(f"'{path}' is not valid JSON", why=str(error)) from None
    if not isinstance(found, dict):
        raise RequestError(f"'{path}' is not a JSON object")
    return found


def _wanted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of the settings, those that decide ids."""
    lists = ("added_tokens_decoder", "extra_special_tokens", "additional_special_tokens", "split_special_tokens")
    return {key: value for key, value in settings.items() if key in lists or _is_token(key, value)}


def _is_token(key: str, value: object) -> bool:
    """`image_token` and the like are special tokens, too."""
    return key in _NAMED or (key.endswith("_token") and isinstance(value, str))


def _only(path: str, wanted: Mapping[str, Any]) -> Any:
    return _from_json(contents(path, "tokenizer"), path, wanted)[0]


def _from_json(data: bytes, path: str, wanted: Mapping[str, Any]) -> tuple[Any, int]:
    """The tokenizer, and how many of its tokens the settings add or change."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_buffer(data)
        changes = tokenizer.add_tokens(_missing(tokenizer, wanted))
    except Exception as error:  # it raises no other class
        raise RequestError(f"'{path}' is not a tokenizer of the library tokenizers", why=str(error)) from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = wanted.get("split_special_tokens") is True
    return tokenizer, changes


def _from_merges(vocab: str, merges: str) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    try:
        tokenizer = Tokenizer(models.BPE.from_file(vocab, merges))
    except Exception as error:  # it raises no other class
        raise RequestError(f"'{vocab}' and '{merges}' are not vocabulary and merges of GPT-2", why=str(error)) from None
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(_GPT2_END, special=True)])
    return tokenizer


def _missing(tokenizer: Any, wanted: Mapping[str, Any]) -> list[Any]:
    """Tokens to add, in transformers' order; the library ignores those that it has."""
    from tokenizers import AddedToken

    def token(value: Any, **flags: Any) -> Any:
        if isinstance(value, str):
            return AddedToken(value, special=True)
        known = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
        return AddedToken(**{key: value[key] for key in known if key in value} | flags)

    decoder = wanted.get("added_tokens_decoder") or {}
    found = [token(value) for _, value in sorted(decoder.items(), key=lambda item: int(item[0]))]
    has = {token.content for token in (*tokenizer.get_added_tokens_decoder().values(), *found)}
    for value in _named(wanted):
        one = token(value, special=True)
        if one.content not in has:
            has.add(one.content)
            found.append(one)
    return found


def _named(wanted: Mapping[str, Any]) -> Iterator[Any]:
    yield from (wanted[key] for key in _NAMED if wanted.get(key))
    yield from (value for key, value in wanted.items() if key not in _NAMED and key.endswith("_token") and value)
    extra = wanted.get("extra_special_tokens") or wanted.get("additional_special_tokens") or ()
    yield from extra.values() if isinstance(extra, dict) else extra


def _end(tokenizer: Any, wanted: Mapping[str, Any]) -> str:
    """The token that ends a document: the end of a sequence, or, without that, what separates two (Megatron's rule)."""
    for key in ("eos_token", "sep_token"):
        if value := wanted.get(key):
            return str(value["content"] if isinstance(value, dict) else value)
    if any(key in wanted for key in _NAMED):
        return ""
    has = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    ends = [one for one in _ENDS if one in has]
    return ends[0] if len(ends) == 1 else ""


def _around(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The ids that the post-processor puts before and after each text."""
    inner = tokenizer.encode("a", add_special_tokens=False).ids
    whole = tokenizer.encode("a").ids
    for at in range(len(whole) - len(inner) + 1):
        if whole[at : at + len(inner)] == inner:
            return whole[:at], whole[at + len(inner) :]
    return [], []
