"""The `data` section: the same words in all backends, for local text, raw text with a tokenizer, and prepared data."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from primus_core.config.document import Document
from primus_core.environment import resolve as environment
from primus_core.errors import ConfigError, MachineError
from primus_core.request import former
from primus_data.indexed.layout import fault
from primus_data.indexed.tokens import unknown
from primus_data.sources.walk import LeftOut
from primus_data.tokenizers import KINDS
from primus_data.training.corpora import Corpus, Prefixes, Raw, Text, is_number, refuse_numbers
from primus_data.training.files import STDLIB, SUFFIXES, TOO_LARGE, has_text
from primus_data.training.vocabulary import SMALLEST
from primus_train.backend import BackendCall
from primus_train.kit.settings import PrimusSetting, own_section

__all__ = ["OTHER_NAMES", "refuse_faults", "resolve", "rows", "rows_of_prefixes"]

_ENOUGH = 1 << 20
"""So many tokens are looked at for one that the model does not know."""

OTHER_NAMES = os.path.join(os.path.dirname(__file__), "other_names.toml")
"""What other tools call its settings."""

_OF_TEXT = ("text", "document_chars")
_OF_RAW = ("input", "tokenizer_type", "tokenizer_model", "json_key", "append_eod")
_OF_PREFIXES = ("train_data_path", "valid_data_path")
_OF_SOURCES = (*_OF_RAW, *_OF_PREFIXES, "split", "eod_id")


def rows(becomes: str, vocab_size: str) -> tuple[PrimusSetting, ...]:
    """The settings of the section; `becomes`, `vocab_size`: what `text` and `vocab_size` are in the framework."""
    return (
        PrimusSetting("text", "str", None, "`python-stdlib`, or a folder of text files, to train on", becomes),
        PrimusSetting("vocab_size", "int", None,
            "size of the tokenizer that is trained on the text, end of document included",
            vocab_size, least=SMALLEST),
        PrimusSetting("document_chars", "int", 0,
            "cut documents at line ends into pieces of about this size; 0: whole files",
            "the documents of the data", least=0),
        PrimusSetting("input", "str or list", None,
            "raw text to train on: files, patterns or folders, as `data prepare --input` takes them",
            "prepared in a step before the worker, like `data.text`"),
        PrimusSetting("tokenizer_type", "str", "HuggingFaceTokenizer",
            "how `input` is tokenized: a `--tokenizer-type` of `data prepare`", "-"),
        PrimusSetting("tokenizer_model", "str", None, "the file of this tokenizer, for instance `tokenizer.json`", "-"),
        PrimusSetting("json_key", "str", "text", "the key of `input` that has the text", "-"),
        PrimusSetting("append_eod", "bool", True, "end each document with the tokenizer's end of document", "-"),
        PrimusSetting("split", "str or list", None,
            "shares of the documents to train on and to validate on, such as `98,2`; by default all are trained on",
            "the parts of the data"),
        PrimusSetting("cache", "str", None, "folder for prepared data; by default `data` in Primus's cache", "-"),
    )  # fmt: skip


def rows_of_prefixes(becomes: str, valid: str) -> tuple[PrimusSetting, ...]:
    """The settings for prepared data, of backends whose framework has none."""
    return (
        PrimusSetting("train_data_path", "str or list", None,
            "prefixes of `.bin`/`.idx` files to train on; either all have a weight before them, or none", becomes),
        PrimusSetting("valid_data_path", "str or list", None,
            "prefixes of the files to validate on, in the same form; each is read once, whatever its weight", valid),
    )  # fmt: skip


def resolve(
    document: Document,
    table: Sequence[PrimusSetting],
    call: BackendCall,
    framework: str,
    *,
    is_model_known: bool = True,
) -> Corpus | None:
    """What the section names, or None where the experiment has none.

    `is_model_known`: nothing but the section says how many tokens there are.

    Raises:
        ConfigError: a name or a value is wrong, or one is missing.
    """
    named = own_section(document, table, "data", framework, (OTHER_NAMES,))
    given = {name: value for name, value in named.items() if value is not None}
    _refuse_mixtures(document, given)
    if given.get("input"):
        return _raw(document, given, call)
    if given.get("train_data_path"):
        return _prefixes(document, given, call)
    if not given:
        return None
    return _text(document, given, call, needs_vocabulary=is_model_known)


def _refuse_mixtures(document: Document, given: dict[str, Any]) -> None:
    """`data` names one source, and settings of no other."""
    sources = [name for name in ("text", "input", "train_data_path") if given.get(name)]
    others = {"text": (*_OF_RAW, *_OF_PREFIXES, "split", "eod_id"), "input": (*_OF_TEXT, *_OF_PREFIXES, "vocab_size"),
              "train_data_path": (*_OF_TEXT, *_OF_RAW, "vocab_size", "cache")}  # fmt: skip
    if len(sources) > 1:
        kept = sources[1]
        unset = [name for name in given if name == sources[0] or name in others[kept]]
        without = " ".join(f"data.{name}=null" for name in unset)
        foreign = " ".join(f"data.{name}=null" for name in given if name in (*sources[1:], *others[sources[0]]))
        what = f"'data.{sources[0]}' and 'data.{kept}' both set the training data"
        fix = f"remove one of them; to train on data.{kept}: {without}"
        if "vocab_size" in unset:
            fix += "\nthe model then has a vocabulary of its own: that of a named model, or model.vocab_size=N"
            fix += " (vocab_size=N under Megatron and MaxText)"
        fix += f"\nto train on data.{sources[0]}: {foreign}"
        raise ConfigError(what, where=document.where((sources[0],)), fix=fix)
    wrong = [name for name in (others[sources[0]] if sources else _OF_SOURCES) if name in given]
    if sources and wrong:
        names, do = " and ".join(f"'data.{name}'" for name in wrong), "do" if len(wrong) > 1 else "does"
        what = f"{names} {do} not go with 'data.{sources[0]}'"
        instead = " and ".join(dict.fromkeys(f"data.{_source_of(name)}" for name in wrong))
        without = " ".join(f"data.{name}=null" for name in wrong)
        gone = " ".join(f"data.{name}=null" for name in given if name == sources[0] or name in others["input"])
        more = " and data.tokenizer_model" if instead == "data.input" and "tokenizer_model" not in given else ""
        fix = f"remove it: {without}\nor set {instead}{more}, without data.{sources[0]}"
        fix += f": {gone}" if instead == "data.input" else ""
        raise ConfigError(what, where=document.where((wrong[0],)), fix=fix)
    for name in wrong:
        what = f"'data.{name}' is set, and there is no 'data.{_source_of(name)}'"
        raise ConfigError(what, where=document.where((name,)), fix=f"set that, or remove 'data.{name}'")


def _source_of(name: str) -> str:
    if name in (*_OF_TEXT, "vocab_size"):
        return "text"
    return "train_data_path" if name in (*_OF_PREFIXES, "eod_id") else "input"


def _text(document: Document, given: dict[str, Any], call: BackendCall, *, needs_vocabulary: bool) -> Text:
    for name, fix in (("text", f"{STDLIB}, or to a folder of text files"), ("vocab_size", "4096, for instance")):
        if not given.get(name) and (name == "text" or needs_vocabulary):
            raise ConfigError(f"`data` has no `{name}`", where=document.where(()), fix=f"set `data.{name}` to {fix}")
    source = given["text"] if given["text"] == STDLIB else os.path.join(call.facts.cwd, given["text"])
    if source != STDLIB and call.facts.host.is_here and not call.elsewhere:
        _refuse_no_text(source, given["text"], document.where(("text",)))
    return Text(
        source=source,
        vocab_size=given.get("vocab_size") or 0,
        document_chars=given.get("document_chars", 0),
        cache=_cache(given, call),
    )


def _refuse_no_text(path: str, named: str, where: str) -> None:
    if os.path.isfile(path):
        fix = f"name its folder; for JSON lines, parquet or one text: data.input={named} and data.tokenizer_model"
        raise ConfigError(f"'{named}' is not a folder", where=where, why="data.text is a folder of text files", fix=fix)
    if os.path.isdir(path) and not has_text(path, left_out := LeftOut(path)):
        why = f"looked for files in UTF-8 that end in {', '.join(sorted(SUFFIXES))}"
        why += f"; left out: {left_out}" if left_out.names else ""
        fix = "name another folder"
        if TOO_LARGE in left_out.names:
            fix = "split the large files, or let Primus prepare them as `data prepare` does: data.text=null "
            fix += f"data.vocab_size=null data.input={named} data.tokenizer_model=FILE"
        raise ConfigError(f"there is no text in '{named}'", where=where, why=why, fix=fix)


def _raw(document: Document, given: dict[str, Any], call: BackendCall) -> Raw:
    kind, model = given.get("tokenizer_type", "HuggingFaceTokenizer"), given.get("tokenizer_model", "")
    if not model and not kind.startswith("Null"):
        raise ConfigError(
            "`data` has no `tokenizer_model`",
            where=document.where(("input",)),
            fix="set `data.tokenizer_model` to the tokenizer of the model, for instance to its tokenizer.json",
        )
    if kind not in KINDS:
        known = f"known: {', '.join(KINDS)}"
        what, fix = f"there is no tokenizer '{kind}'", former.answer("prepare", kind, KINDS).fix or "use one of them"
        raise ConfigError(what, where=document.where(("tokenizer_type",)), why=known, fix=fix)
    cwd, inputs = call.facts.cwd, given["input"]
    return Raw(
        inputs=tuple(os.path.join(cwd, str(path)) for path in (inputs if isinstance(inputs, list) else [inputs])),
        tokenizer=(kind, os.path.join(cwd, model) if model else ""),
        json_key=given.get("json_key", "text"),
        append_eod=given.get("append_eod", True),
        eod=given.get("eod_id"),
        split=_split(document, given),
        cache=_cache(given, call),
    )


def _prefixes(document: Document, given: dict[str, Any], call: BackendCall) -> Prefixes:
    if given.get("valid_data_path") and given.get("split"):
        what = "'data.valid_data_path' and 'data.split' both set what is validated on"
        raise ConfigError(what, where=document.where(("split",)), fix="remove one of them")
    train, valid = (_blend(document, name, given.get(name) or [], call.facts.cwd) for name in _OF_PREFIXES)
    were_split = tuple(
        name for name in _OF_PREFIXES if len(_words(given.get(name))) > 1 and isinstance(given[name], str)
    )
    return Prefixes(train, valid, _split(document, given), given.get("eod_id"), were_split)


def _blend(document: Document, name: str, given: Any, cwd: str) -> tuple[tuple[float | None, str], ...]:
    """`[3, web, 1, books]` or `[web, books]`, also as words, as weights and absolute prefixes."""
    words = _words(given)
    weighted = len(words) > 1 and len(words) % 2 == 0 and all(is_number(word) for word in words[::2])
    pairs = list(zip(words[::2], words[1::2], strict=True)) if weighted else [(None, word) for word in words]
    refuse_numbers(f"data.{name}", [word for _, word in pairs], cwd, document.where((name,)))
    return tuple(
        (None if weight is None else float(weight), _prefix(document, name, weight, word, cwd))
        for weight, word in pairs
    )


def _words(given: Any) -> list[Any]:
    """Return what a list names, whose paths keep their blanks, or a text, which is split."""
    return given if isinstance(given, list) else str(given or "").split()


def _prefix(document: Document, name: str, weight: Any, word: Any, cwd: str) -> str:
    where = document.where((name,))
    if not isinstance(word, str):
        fix = "name paths, either all with a weight before them, or none"
        raise ConfigError(f"'data.{name}' has {word!r} where a path should be", where=where, fix=fix)
    if weight is not None and float(weight) <= 0:
        what, why = f"'data.{name}' gives '{word}' the weight {weight}", "weights are fractions of the data"
        raise ConfigError(what, where=where, why=why, fix="increase it, or remove the path")
    if word.endswith((".bin", ".idx")):
        what = f"'data.{name}' names '{word}'"
        raise ConfigError(what, where=where, why=".bin and .idx are added", fix=f"write {word[:-4]}")
    return os.path.normpath(os.path.join(cwd, word))


def refuse_faults(data: Prefixes, document: Document, call: BackendCall, vocab_size: int) -> None:
    """Refuse files that are here and cannot be trained on. `vocab_size`: of the model; 0: nobody knows.

    Raises:
        MachineError: they are damaged or empty, or have tokens that the model does not know.
    """
    if not call.facts.host.is_known:
        return
    for name, blend in zip(_OF_PREFIXES, (data.train, data.valid), strict=True):
        for _, prefix in blend:
            if why := _fault(prefix, vocab_size):
                fix = why[1] or f"correct 'data.{name}' (a path without .bin and .idx)"
                what = f"{document.where((name,))}: the data '{prefix}' cannot be trained on"
                raise MachineError(what, why=why[0], fix=fix)


def _fault(prefix: str, vocab_size: int) -> tuple[str, str] | None:
    """Why files cannot be trained on, and what to do where that is not the path."""
    if not all(os.path.exists(prefix + suffix) for suffix in (".bin", ".idx")):
        return None  # a requirement of the plan
    try:
        if why := fault(prefix):
            return why, ""
        return _unknown_token(prefix, vocab_size) if vocab_size else None
    except OSError as error:
        return str(error), ""


def _unknown_token(prefix: str, vocab_size: int) -> tuple[str, str] | None:
    """A framework may train on with tokens that the model does not have, to losses that mean nothing."""
    if (found := unknown(prefix, vocab_size, _ENOUGH)) is None:
        return None
    why = f"it has the token {found.token}, but the vocabulary of the model has {vocab_size} (0 to {vocab_size - 1})"
    return why, f"give the model a vocabulary of at least {found.needed}, or name data of its tokenizer"


def _split(document: Document, given: dict[str, Any]) -> tuple[float, ...]:
    asked = given.get("split") or []
    words = asked if isinstance(asked, list) else str(asked).split(",")
    if not all(map(is_number, words)) or len(words) > 3 or (words and not _are_shares([float(w) for w in words])):
        what = f"'data.split' is '{given['split']}'"
        fix = "write shares of the documents to train and validate on, such as 98,2"
        raise ConfigError(what, where=document.where(("split",)), fix=fix)
    return tuple(float(word) for word in words)


def _are_shares(words: list[float]) -> bool:
    """The first is what is trained on."""
    return words[0] > 0 and min(words) >= 0


def _cache(given: dict[str, Any], call: BackendCall) -> str:
    cache = given.get("cache") or os.path.join(environment.cache(call.facts.environ), "data")
    return os.path.join(call.facts.cwd, cache)
