"""Errors that a person sees: all at once, unless one of them makes the others needless."""

from __future__ import annotations

import pytest

from primus_machine.errors import ConfigError, Mistakes, RequestError, SeveralErrors, as_line, nearest, printed_in


def test_what_cannot_be_done_at_all_is_the_only_error() -> None:
    mistakes, never = Mistakes(), ConfigError("this stage is not here", where="exp.yaml:9")
    mistakes.add(RequestError("lr is not a number"), never)
    with pytest.raises(SeveralErrors):
        mistakes.refuse()
    never.is_final = True
    with pytest.raises(ConfigError) as caught:
        mistakes.refuse()
    assert caught.value is never


def test_several_errors_have_the_fields_of_the_first_and_words_are_retold_too() -> None:
    first = RequestError("no '/copy/x'", kind="unknown", options=["/copy/x"], meant="y")
    several = SeveralErrors([first, RequestError("other")])
    assert (several.kind, several.option, several.meant) == ("unknown", "/copy/x", "y")
    first.retold(lambda text: text.replace("/copy/", "/"))
    assert (first.what, first.option) == ("no '/x'", "/x")


def test_an_error_that_was_printed_is_found_in_a_text_with_why_and_fix() -> None:
    printed = f"line\n3: {as_line(RequestError('no file', why='it is gone'))}another\n"
    assert printed_in(printed) == ["no file\n  why: it is gone"]


def test_words_are_not_alike_by_the_end_that_all_of_them_have() -> None:
    kinds = ("HuggingFaceTokenizer", "NullTokenizer", "TikTokenizer")
    assert nearest("ByteLevelTokenizer", kinds) == ""
    assert nearest("HuggingFacTokenizer", kinds) == "HuggingFaceTokenizer"
    assert nearest("stpes", ("steps", "training.steps")) == "steps"
    assert nearest("GPT2", (*kinds, "GPT2BPETokenizer", "GPTSentencePieceTokenizer")) == "GPT2BPETokenizer"
    assert nearest("Bert", ("BertWordPieceLowerCase", "BertWordPieceCase")) == "", "several begin so"
    assert nearest("GPT2", ("GPT2BPETokenizer", "other"), 0.7) == "", "somebody wants to be surer"
    assert nearest("form", ("from", "force"), 0.9) == "from", "letters that are swapped"
