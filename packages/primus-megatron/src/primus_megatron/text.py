"""What to train on: `.bin`/`.idx` files that are there, or text that a step of the plan prepares before the worker."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from primus_core.config.document import Document
from primus_core.errors import MachineError
from primus_core.plan.plan import Requirement, Step
from primus_data.indexed.layout import fault, read
from primus_data.training import section
from primus_data.training.corpora import Prefixes, Raw, Text, refuse_numbers, split_at_blanks
from primus_megatron.own_settings import DATA
from primus_megatron.settings import Settings
from primus_megatron.vocabulary import tokens, use_null_tokenizer
from primus_train.backend import BackendCall
from primus_train.paths import PathKind

__all__ = ["DATA_PATHS", "Text", "apply_text", "data_files", "lacks_validation", "listed", "resolve_text"]

DATA_PATHS = ("data_path", "train_data_path", "valid_data_path", "test_data_path")
_FILES = ("data_args_path", "per_split_data_args_path")
PATHS: Mapping[str, PathKind] = {
    **dict.fromkeys(DATA_PATHS, "blend"),
    **dict.fromkeys(("save", "data_cache_path"), "output"),
    **dict.fromkeys((*_FILES, "load", "pretrained_checkpoint"), "path"),
    **dict.fromkeys(("tokenizer_model", "vocab_file", "merge_file"), "name"),
}
"""Settings that are paths. A tokenizer may be a name on huggingface.co."""
_PARTS, _SPLIT = ("training", "validation", "test"), "969,30,1"
"""What Megatron splits data into, and how where nobody says it."""
_TAKEN = (*DATA_PATHS, *_FILES, "mock_data", "split")
_RAW = (".jsonl", ".json", ".txt", ".parquet", ".jsonl.gz", ".jsonl.zst")
_TOKENIZER = ("tokenizer_type", "tokenizer_model")


def resolve_text(document: Document, call: BackendCall) -> Text | Raw | None:
    """The section, or None where the experiment has none."""
    found = section.resolve(document, DATA, call, "Megatron")
    assert not isinstance(found, Prefixes)  # Megatron has settings of its own for them
    return found


def apply_text(text: Text | Raw, settings: Settings, call: BackendCall) -> tuple[Step, ...]:
    """The steps that prepare the text; Megatron is told to read the result.

    Raises:
        ConfigError: the data, or its vocabulary, is named twice; or Megatron needs a tokenizer beside it.
    """
    is_raw = isinstance(text, Raw)
    same: dict[str, Any] = {"mock_data": False} | ({} if isinstance(text, Raw) else {"vocab_size": text.vocab_size})
    taken = (*_TAKEN, *(() if is_raw else (*_TOKENIZER, "vocab_size")))
    twice = [one for one in taken if one in settings and not (one in same and settings[one] == same[one])]
    if twice:
        name, source = twice[0], "data.input" if is_raw else "data.text"
        fix = "keep one of them" + (f"; to train on {name}: {_without(text, name, call)}" if name in _TAKEN else "")
        fix += f"\nto train on {source}: {' '.join(f'{one}=null' for one in twice)}"
        if name == "split":  # it is no data
            fix = "remove it: split=null"
        raise settings.error(name, f"'{name}' and '{source}' both set the training data", fix=fix)
    if isinstance(text, Raw):
        _read_raw(text, settings, call)
    else:
        told = text.told(call)
        for name, part in zip(DATA_PATHS[1:], ("train", "validation", "validation"), strict=True):
            settings.set(name, [told[part]["blend"][0][1]])
        use_null_tokenizer(settings, text.vocab_size)
    return text.steps(call, tokens(settings))


def _without(text: Text | Raw, name: str, call: BackendCall) -> str:
    """What takes the section `data` away, with the vocabulary that its tokenizer said."""
    unset = " ".join(f"data.{one}=null" for one in call.document.section(("data",)).data)
    if isinstance(text, Raw):
        return unset
    if name == "mock_data":
        return f"{unset} vocab_size={text.vocab_size}"
    return f"{unset}, and its tokenizer_type and tokenizer_model"


def _read_raw(text: Raw, settings: Settings, call: BackendCall) -> None:
    prefix = text.told(call)["train"]["blend"][0][1]
    if len(text.split) > 1:
        settings.set("data_path", [prefix])
        settings.set("split", ",".join(f"{share:g}" for share in text.split))
    else:
        settings.set("train_data_path", [prefix])
    if any(name in settings for name in _TOKENIZER):
        return
    if settings["vocab_size"] is None:
        raise settings.error("vocab_size", "'vocab_size' is not set", why="the model needs it")
    for name in ("reset_position_ids", "reset_attention_mask", "eod_mask_loss"):
        if settings[name]:
            fix = "set tokenizer_type and tokenizer_model to the tokenizer of 'data', as Megatron takes it"
            raise settings.error(name, f"'{name}' needs the end of document", why="no tokenizer says it", fix=fix)
    use_null_tokenizer(settings, settings["vocab_size"])


def data_files(settings: Settings, cwd: str, *, known: bool) -> list[Requirement]:
    """The files that the settings name, which must be there when it runs; paths become absolute.

    `known`: the files of this machine are the ones that it will read.

    Raises:
        ConfigError: there is nothing to train on, or a path has a suffix that Megatron adds itself.
        MachineError: what is there cannot be trained on.
    """
    given = [name for name in (*DATA_PATHS, *_FILES) if settings[name]]
    if not given and not settings["mock_data"]:
        raise settings.error(
            "mock_data",
            "there is no training data",
            fix="set train_data_path (or data_path) to .bin/.idx files, `data.text`, or mock_data: true",
        )
    if given and settings["mock_data"]:
        fix = f"keep one: mock_data=false, or {' '.join(f'{one}=null' for one in given)}"
        raise settings.error("mock_data", f"'mock_data' and '{given[0]}' both set the training data", fix=fix)
    found: list[Requirement] = []
    for name in given:
        found += _whole_files(settings, name, cwd) if name in _FILES else _prefixes(settings, name, cwd, known=known)
    if known:
        _check_parts(settings, cwd)
    return found


def _whole_files(settings: Settings, name: str, cwd: str) -> list[Requirement]:
    settings.set(name, os.path.join(cwd, settings[name]))
    return [Requirement("file", settings[name], f"correct '{name}'")]


def _check_parts(settings: Settings, cwd: str) -> None:
    """Refuse a part of `split` into which nothing of a file falls: Megatron would build its data set without end.

    A part is what `blended_megatron_dataset_builder` takes for it.
    """
    words = [*(settings["data_path"] or ()), *listed(settings)]
    text = str(settings["split"] or _SPLIT)
    shares = [float(word) for word in text.split(",") if _is_number(word)]
    for prefix in (os.path.join(cwd, word) for word in words if not _is_number(word)):
        index = read(prefix) if os.path.isfile(f"{prefix}.idx") else ""
        count, begin = (0 if isinstance(index, str) else index.sequences), 0.0
        for part, share in zip(_PARTS, shares if count else (), strict=False):
            end = begin + share / (sum(shares) or 1)
            is_needed = share and (part == _PARTS[0] or settings["eval_iters"])
            if is_needed and round(begin * count) == round(end * count):
                what = f"'split: {text}' leaves nothing of '{os.path.relpath(prefix, cwd)}' for the {part}"
                why = f"it has {count} sequences; Megatron would look for more without end"
                fix = "give the part a larger share, or 0; or prepare more data"
                raise settings.error("split", what, why=why, fix=fix)
            begin = end


def listed(settings: Settings) -> list[str]:
    """The words of the file that lists a blend, if there is one."""
    if not os.path.isfile(settings["data_args_path"] or ""):
        return []
    with open(settings["data_args_path"], encoding="utf-8", errors="replace") as file:
        return file.read().split()


def _prefixes(settings: Settings, name: str, cwd: str, *, known: bool) -> list[Requirement]:
    """A blend: prefixes of file names, each with a weight before it or none with any."""
    words, found = list(settings[name]), []
    was_split = (name,) if len(words) > 1 and name in settings.texts else ()
    weighted = len(words) % 2 == 0 and len(words) > 1 and all(map(_is_number, words[::2]))
    paths = range(1, len(words), 2) if weighted else range(len(words))
    refuse_numbers(name, [words[index] for index in paths], cwd, settings.where(name))
    for index in paths:
        word = words[index]
        if word.endswith(_RAW):
            what, why = f"'{name}' names '{word}'", "that is raw text, and Megatron reads .bin/.idx files"
            fix = f"{name}=null data.input={word} data.tokenizer_model=FILE, or `primus data prepare`"
            raise settings.error(name, what, why=why, fix=fix)
        if word.endswith((".bin", ".idx")):
            raise settings.error(
                name,
                f"'{name}' names '{word}'",
                why="Megatron adds .bin and .idx itself",
                fix=f"write {word[:-4]}",
            )
        words[index] = path = os.path.join(cwd, word)
        fix = f"prepare the data, or correct '{name}' (a path without .bin and .idx){split_at_blanks(name, was_split)}"
        found += [Requirement("file", path + suffix, fix) for suffix in (".bin", ".idx")]
        if known and all(os.path.exists(path + suffix) for suffix in (".bin", ".idx")):
            _check(path, settings.where(name), fix)
    settings.set(name, words)
    return found


def _check(prefix: str, where: str, fix: str) -> None:
    try:
        why = fault(prefix)
    except OSError as error:
        why = str(error)
    if why:
        raise MachineError(f"{where}: the data '{prefix}' cannot be trained on", why=why, fix=fix)


def lacks_validation(settings: Settings) -> str:
    """Why there is nothing to evaluate on, over which Megatron would fail; empty if there is, or nobody can tell."""
    if settings["train_data_path"]:
        return "" if settings["valid_data_path"] else "there is no valid_data_path"
    shares = (settings["split"] or "").split(",")
    if len(shares) > 1 and _is_number(shares[1]) and not float(shares[1]):
        return f"split {settings['split']} leaves no data for it"
    return ""


def _is_number(word: str) -> bool:
    try:
        return float(word) >= 0
    except ValueError:
        return False
