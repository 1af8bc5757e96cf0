"""Tokenizers: the same ids as the libraries that Megatron uses, whichever encodes; files, settings and mistakes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data import vocabularies as made

from primus_data.tokenizers import KINDS, Tokenizer, choice, engines, load, proof
from primus_data.tokenizers.encodings import MEGATRON
from primus_machine.errors import MachineError, RequestError

pytest.importorskip("gigatoken")

OWN = ("<|endoftext|>", "<|begin_of_text|>", "<|eot_id|>", "<SPECIAL_7>", "[UNK]", "<sep>")
TEXT = st.lists(st.one_of(st.sampled_from((*proof.PIECES, *OWN)), st.text(max_size=8)), max_size=12).map("".join)
TEXTS = st.lists(TEXT, max_size=6)


class Case:
    """A kind, its files, and the library itself as Megatron calls it."""

    def __init__(self, kind: str, model: Path, encodes: str, expected: Callable[[str], Sequence[int]]) -> None:
        self.kind, self.model, self.encodes, self.expected = kind, model, encodes, expected

    def load(self, **options: Any) -> Tokenizer:
        return load(self.kind, str(self.model), **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the files are."""
    return tmp_path_factory.mktemp("vocabularies")


@pytest.fixture(scope="module")
def gpt2() -> Any:
    return made.byte_level("")


@pytest.fixture(scope="module")
def llama3() -> Any:
    from tokenizers import processors

    tokenizer = made.byte_level(made.LLAMA3_SPLIT, ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"))
    begin = ("<|begin_of_text|>", tokenizer.token_to_id("<|begin_of_text|>"))
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{begin[0]} $A", special_tokens=[begin])
    return tokenizer


@pytest.fixture(scope="module")
def cases(folder: Path, gpt2: Any, llama3: Any) -> dict[str, Case]:
    """Each kind of tokenizer."""
    return {case.model.name: case for case in _cases(folder, gpt2, llama3)}


def _cases(folder: Path, gpt2: Any, llama3: Any) -> Iterator[Case]:
    for name, tokenizer in (("gpt2", gpt2), ("llama3", llama3), *_fallbacks(gpt2)):
        path = folder / f"{name}.json"
        tokenizer.save(str(path))
        encodes = {"gpt2": "gigatoken", "llama3": "gigatoken", "own_split": "tiktoken"}.get(name, "tokenizers")
        yield Case("HuggingFaceTokenizer", path, encodes, partial(_tokenizers, tokenizer))
    yield Case("GPT2BPETokenizer", made.gpt2_files(folder, gpt2), "gigatoken", partial(_tokenizers, gpt2))
    tokens = made.ranks(gpt2)
    for name in ("r50k_base", "cl100k_base", "o200k_base", "llama3"):
        path = made.rank_file(folder / f"tiny.{name}.tiktoken", tokens)
        yield Case("TikTokenizer", path, "gigatoken", partial(_tiktoken, _encoding(name, tokens)))
    for name, options in (
        ("llama2", made.LLAMA2),
        ("bpe", {"model_type": "bpe"}),
        ("symbols", {**made.LLAMA2, "user_defined_symbols": "<sep>,=>"}),
        ("unigram", {"model_type": "unigram"}),
    ):
        path = made.sentencepiece_model(folder / f"{name}.model", **options)
        encodes = "gigatoken" if name == "llama2" else "sentencepiece"
        yield Case("SentencePieceTokenizer", path, encodes, _sentencepiece(path))


def _fallbacks(gpt2: Any) -> Iterator[tuple[str, Any]]:
    """Those that gigatoken does not take."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    odd = Tokenizer.from_str(gpt2.to_str())
    parts = (pre_tokenizers.Split(Regex(r"\w{1,3}|\W"), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False))
    odd.pre_tokenizer = pre_tokenizers.Sequence(list(parts))
    yield "odd_split", odd  # the two regex libraries differ in what \w is
    yield "own_split", made.byte_level(made.OWN_SPLIT)
    words = {word: number for number, word in enumerate(("[UNK]", "hello", "##o", "a", "##a", "h", "x", "##x"))}
    wordpiece = Tokenizer(models.WordPiece(words, unk_token="[UNK]"))
    wordpiece.normalizer, wordpiece.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    wordpiece.add_special_tokens(["[UNK]"])
    yield "wordpiece", wordpiece


def _tokenizers(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text).ids)


def _tiktoken(encoding: Any, text: str) -> list[int]:
    return list(encoding.encode(text, allowed_special="all"))


def _sentencepiece(path: Path) -> Callable[[str], list[int]]:
    from sentencepiece import SentencePieceProcessor

    processor = SentencePieceProcessor(model_file=str(path))
    return lambda text: list(processor.encode_as_ids(text))


def _encoding(name: str, tokens: list[bytes]) -> Any:
    """tiktoken's own pattern, and its special tokens beside these ranks."""
    from tiktoken import Encoding

    from primus_data.tokenizers.encodings import encoding_for

    found = encoding_for(name, len(tokens))
    assert found is not None
    ranks = {token: rank for rank, token in enumerate(tokens)}
    specials = {text: len(tokens) + at for text, at in found.specials.items()}
    return Encoding(name, pat_str=found.pattern, mergeable_ranks=ranks, special_tokens=specials)


def rows(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """The ids by text."""
    ids, counts = tokenizer.encode(texts)
    assert ids.dtype == np.uint32
    assert counts.dtype == np.int64
    assert len(ids) == counts.sum()
    return [row.tolist() for row in np.split(ids, np.cumsum(counts)[:-1])] if texts else []


NAMES = (
    *("gpt2.json", "llama3.json", "odd_split.json", "wordpiece.json", "vocab.json"),
    *(f"tiny.{name}.tiktoken" for name in ("r50k_base", "cl100k_base", "o200k_base", "llama3")),
    *("llama2.model", "bpe.model", "symbols.model", "unigram.model"),
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.full
def test_each_kind_gives_the_ids_of_the_library_that_megatron_uses(cases: dict[str, Case], name: str) -> None:
    case = cases[name]
    tokenizer = case.load(threads=2)
    assert tokenizer.name == case.encodes

    @settings(max_examples=150, deadline=None)
    @given(TEXTS)
    def check(texts: list[str]) -> None:
        assert rows(tokenizer, texts) == [list(case.expected(text)) for text in texts]

    check()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.full
def test_a_whole_corpus_gives_the_ids_of_the_library(cases: dict[str, Case], name: str) -> None:
    case, texts = cases[name], made.corpus(12)
    tokenizer = case.load(threads=1)
    assert rows(tokenizer, texts) == [list(case.expected(text)) for text in texts]
    assert rows(tokenizer, ["", *texts[:2], ""])[1:3] == rows(tokenizer, texts[:2])


@pytest.mark.parametrize("name", [name for name in NAMES if "wordpiece" not in name])
@pytest.mark.full
def test_ids_become_the_text_again(cases: dict[str, Case], name: str) -> None:
    tokenizer = cases[name].load()
    ids, _ = tokenizer.encode(["def f(x): return x + 1"])
    assert "def f(x): return x + 1" in tokenizer.decode(ids.tolist())


@pytest.mark.full
def test_megatrons_list_of_ranks_has_its_special_tokens_first(tmp_path: Path, gpt2: Any) -> None:
    from tiktoken import Encoding

    tokens = made.ranks(gpt2)
    size = len(tokens) + 1000
    model = made.rank_list(tmp_path / "ranks.json", tokens)
    names = ["<unk>", "<s>", "</s>", "<mask>", "<pad>", "<cls>", "<sep>", *(f"<SPECIAL_{at}>" for at in range(7, 1000))]
    expected = Encoding(
        "megatron",
        pat_str=MEGATRON.pattern,
        mergeable_ranks={token: rank + 1000 for rank, token in enumerate(tokens)},
        special_tokens={name: at for at, name in enumerate(names)},
    )
    tokenizer = load("TikTokenizer", str(model), vocab_size=size)
    assert (tokenizer.name, tokenizer.vocab_size, tokenizer.eod) == ("gigatoken", size, 2)
    texts = proof.texts(names, 300, seed=7)
    assert rows(tokenizer, texts) == [_tiktoken(expected, text) for text in texts]
    assert load("TikTokenizer", str(model), vocab_size=1400).vocab_size == 1400  # the first 400 ranks, as Megatron does
    with pytest.raises(RequestError, match=r"has 999 ranks, but 130072 are expected") as error:
        load("TikTokenizer", str(model))
    assert error.value.fix == f"pass --vocab-size {size}"


@pytest.mark.full
def test_a_library_that_encodes_differently_is_found_out(
    cases: dict[str, Case], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from primus_data.tokenizers import huggingface

    right = huggingface.define(str(folder / "gpt2.json"), 1)
    wrong = huggingface.define(str(folder / "llama3.json"), 1)
    tokenizer = choice.chosen(right._replace(fast=wrong.fast), 1)
    assert tokenizer.name == "tokenizers"
    assert rows(tokenizer, ["x1234 y"]) == [list(cases["gpt2.json"].expected("x1234 y"))]
    assert "tokenizers encodes, gigatoken cannot: it encodes '' differently" in capsys.readouterr().err


class TestSettingsBesideTheFile:
    """`tokenizer_config.json` and what it changes, as transformers 5 reads it."""

    @staticmethod
    def write(folder: Path, tokenizer: Any, config: object = None, more: object = None) -> Tokenizer:
        tokenizer.save(str(folder / "tokenizer.json"))
        for name, content in (("tokenizer_config.json", config), ("special_tokens_map.json", more)):
            if content is not None:
                (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
        return load("HuggingFaceTokenizer", str(folder))

    def test_the_end_of_a_document_is_the_end_of_a_sequence(self, tmp_path: Path, llama3: Any) -> None:
        eot = llama3.token_to_id("<|eot_id|>")
        assert self.write(tmp_path, llama3, {"eos_token": "<|eot_id|>"}).eod == eot
        assert self.write(tmp_path, llama3, {"eos_token": {"content": "<|eot_id|>", "lstrip": False}}).eod == eot
        assert self.write(tmp_path, llama3, {"eos_token": None, "sep_token": "<|eot_id|>"}).eod == eot
        assert self.write(tmp_path, llama3, {"pad_token": "<|eot_id|>"}).eod is None
        assert self.write(tmp_path, llama3, {}, {"eos_token": "<|eot_id|>"}).eod == eot

    def test_without_settings_a_well_known_end_is_taken(self, tmp_path: Path, llama3: Any) -> None:
        assert self.write(tmp_path, llama3).eod == llama3.token_to_id("<|end_of_text|>")
        llama3.save(str(tmp_path / "other.json"))
        (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<|eot_id|>"}')
        other = load("HuggingFaceTokenizer", str(tmp_path / "other.json"))
        assert other.eod == llama3.token_to_id("<|end_of_text|>")  # the settings are of another file

    def test_tokens_that_only_the_settings_name_are_added(self, tmp_path: Path, gpt2: Any) -> None:
        config = {"pad_token": "<pad>", "additional_special_tokens": ["<one>"], "image_token": "<image>"}
        tokenizer = self.write(tmp_path, gpt2, config)
        assert (tokenizer.name, tokenizer.vocab_size) == ("gigatoken", made.VOCAB_SIZE + 3)
        assert rows(tokenizer, ["<pad><image><one>"]) == [[made.VOCAB_SIZE + at for at in range(3)]]
        flags = {"single_word": False, "lstrip": True, "rstrip": False, "normalized": False, "special": True}
        decoder = {"added_tokens_decoder": {str(made.VOCAB_SIZE - 1): {"content": made.END, **flags}}}
        assert rows(self.write(tmp_path, gpt2, decoder), ["a  <|endoftext|>"])[0][1:] == [made.VOCAB_SIZE - 1]

    def test_special_tokens_may_be_plain_text(self, tmp_path: Path, gpt2: Any) -> None:
        tokenizer = self.write(tmp_path, gpt2, {"split_special_tokens": True, "eos_token": made.END})
        assert tokenizer.name == "tokenizers"
        assert made.VOCAB_SIZE - 1 not in rows(tokenizer, [f"a{made.END}b"])[0]

    def test_nothing_is_cut_off_or_filled_up(self, tmp_path: Path, gpt2: Any) -> None:
        from tokenizers import Tokenizer

        short = Tokenizer.from_str(gpt2.to_str())
        short.enable_truncation(4)
        short.enable_padding(length=8)
        texts = ["a b c d e f", "a"]
        assert rows(self.write(tmp_path, short), texts) == [_tokenizers(gpt2, text) for text in texts]

    def test_the_digest_is_of_what_decides_ids(self, tmp_path: Path, gpt2: Any) -> None:
        first = self.write(tmp_path, gpt2, {"eos_token": made.END, "chat_template": "x", "model_max_length": 8})
        shutil.copytree(tmp_path, tmp_path / "copy")
        assert load("HuggingFaceTokenizer", str(tmp_path / "copy")).digest == first.digest
        assert self.write(tmp_path, gpt2, {"eos_token": made.END, "chat_template": "y"}).digest == first.digest
        assert self.write(tmp_path, gpt2, {"eos_token": made.END, "pad_token": "<pad>"}).digest != first.digest

    def test_broken_settings_are_named(self, tmp_path: Path, gpt2: Any) -> None:
        for config, why in (("{", "is not valid JSON"), ("[]", "is not a JSON object")):
            with pytest.raises(RequestError, match=f"tokenizer_config.json' {why}"):
                self.write(tmp_path, gpt2, config)
        with pytest.raises(RequestError, match=r"tokenizer.json' is not a tokenizer"):
            self.write(tmp_path, gpt2, {"added_tokens_decoder": {"5": {"content": 7}}})


class TestMistakes:
    """Each is named, with what to do."""

    def test_an_unknown_kind_is_refused_with_a_suggestion(self) -> None:
        with pytest.raises(RequestError, match="tokenizer type 'HuggingfaceTokeniser' is unknown") as error:
            load("HuggingfaceTokeniser", "x")
        assert error.value.fix == f"did you mean 'HuggingFaceTokenizer'? known: {', '.join(KINDS)}"

    @pytest.mark.parametrize("kind", KINDS[:-1])
    def test_a_missing_file_is_named(self, kind: str) -> None:
        with pytest.raises(RequestError, match=r"'nowhere' not found"):
            load(kind, "nowhere")

    @pytest.mark.parametrize("kind", KINDS[:-1])
    @pytest.mark.parametrize(
        "content", [b"", b"{}", b"[1]", b"[]", b"\xff\xfe\x00", b"QQ== 0\nQg== 1\n", b"QQ== a b\n"]
    )
    def test_a_file_that_is_no_tokenizer_is_named(self, tmp_path: Path, kind: str, content: bytes) -> None:
        model = tmp_path / "tiny.r50k_base.tiktoken"
        model.write_bytes(content)
        (tmp_path / "merges.txt").write_bytes(content)
        with pytest.raises(RequestError, match=r"is no|are no|has \d ranks") as error:
            load(kind, str(model))
        assert str(model) in error.value.what

    @pytest.mark.parametrize(
        ("kind", "name", "told"),
        [
            ("HuggingFaceTokenizer", "bpe.model", "SentencePieceTokenizer"),
            ("SentencePieceTokenizer", "gpt2.json", "HuggingFaceTokenizer"),
            ("TikTokenizer", "gpt2.json", "HuggingFaceTokenizer"),
            ("HuggingFaceTokenizer", "tiny.llama3.tiktoken", "TikTokenizer"),
        ],
    )
    def test_a_file_of_another_type_is_refused_with_that_type(
        self, cases: dict[str, Case], kind: str, name: str, told: str
    ) -> None:
        with pytest.raises(RequestError, match="is not ") as error:
            load(kind, str(cases[name].model))
        assert error.value.fix == f"it looks like one for --tokenizer-type {told}"

    @pytest.mark.parametrize("name", ["tiny.llama3.tiktoken", "bpe.model"])
    def test_ids_of_another_tokenizer_are_refused(self, cases: dict[str, Case], name: str) -> None:
        with pytest.raises(RequestError, match="ids from 1 to 9,999,999 are not all ids of the tokenizer"):
            cases[name].load().decode([1, 9_999_999])

    def test_files_that_contradict_themselves_or_have_no_end_are_refused(self, tmp_path: Path, gpt2: Any) -> None:
        named: dict[str, Any] = {"id": "missing", "type_id": 0}
        whole = json.loads(gpt2.to_str())
        whole["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": named}],
            "pair": [],
            "special_tokens": {},
        }
        (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
        with pytest.raises(MachineError, match="the library of the tokenizer failed"):
            load("HuggingFaceTokenizer", str(tmp_path))
        (tmp_path / "tokenizer_config.json").write_text("[" * 100_000)
        with pytest.raises(RequestError, match=r"tokenizer_config.json' is not valid JSON"):
            load("HuggingFaceTokenizer", str(tmp_path))
        with pytest.raises(RequestError, match="'/dev/zero' cannot be read"):
            load("TikTokenizer", "/dev/zero")

    def test_a_folder_without_a_tokenizer_says_what_it_has(self, tmp_path: Path) -> None:
        (tmp_path / "merges.txt").touch()
        with pytest.raises(RequestError, match=r"has no tokenizer.json") as error:
            load("HuggingFaceTokenizer", str(tmp_path))
        assert error.value.fix == "for merges.txt, use --tokenizer-type GPT2BPETokenizer"
        with pytest.raises(RequestError, match="cannot be read") as error:
            load("Llama2Tokenizer", str(tmp_path))
        assert error.value.why == "Is a directory"

    def test_a_file_of_ranks_must_say_how_it_splits(self, tmp_path: Path, gpt2: Any) -> None:
        with pytest.raises(RequestError, match="does not say how it splits text") as error:
            load("TikTokenizer", str(made.rank_file(tmp_path / "mine.tiktoken", made.ranks(gpt2))))
        assert "r50k_base, cl100k_base, o200k_base, llama3" in error.value.fix

    def test_another_size_of_the_vocabulary_is_refused(self, cases: dict[str, Case]) -> None:
        for name in ("gpt2.json", "vocab.json", "tiny.llama3.tiktoken", "llama2.model"):
            with pytest.raises(RequestError, match=r"the tokenizer has a vocabulary of \d+, and --vocab-size is 999"):
                cases[name].load(vocab_size=999)
        assert cases["gpt2.json"].load(vocab_size=made.VOCAB_SIZE).vocab_size == made.VOCAB_SIZE

    @pytest.mark.parametrize(
        ("library", "name"), [("tiktoken", "tiny.llama3.tiktoken"), ("sentencepiece", "bpe.model")]
    )
    def test_a_library_that_is_not_here_is_named_with_its_package(
        self, cases: dict[str, Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, name: str
    ) -> None:
        monkeypatch.setenv("PRIMUS_CACHE", str(tmp_path))
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(MachineError, match=f"Python module '{library}' not found") as error:
            cases[name].load()
        assert error.value.fix == f"pip install 'primus-data[{library}]'"

    @pytest.mark.parametrize("name", ["gpt2.json", "odd_split.json", "llama2.model", "bpe.model"])
    def test_a_text_that_is_no_unicode_is_named(self, cases: dict[str, Case], name: str) -> None:
        with pytest.raises(RequestError, match="text 1 is not valid Unicode: it has a lone surrogate"):
            cases[name].load().encode(["a", "b\ud800"])


@pytest.mark.parametrize("scheme", ["gpt4", "o200k", "kimi"])
@pytest.mark.full
def test_a_split_that_is_almost_the_same_is_found_out(folder: Path, cases: dict[str, Case], scheme: str) -> None:
    from primus_data.tokenizers import encodings, ranks

    model = folder / "tiny.llama3.tiktoken"
    almost = encodings.encoding_for(model.name, 999)
    assert almost is not None
    found = ranks._read(str(model), model.read_bytes(), 0)
    definition = ranks.define(str(model), 1, 0)
    wrong = found._replace(encoding=almost._replace(scheme=scheme))
    assert (
        choice.chosen(definition._replace(fast=(partial(ranks._fast, wrong, definition.reference, 1),)), 1).name
        == "tiktoken"
    )


@pytest.mark.full
def test_a_token_that_no_merges_lead_to_is_found_as_a_whole_word(tmp_path: Path, gpt2: Any) -> None:
    tokens = [*made.ranks(gpt2), b" qzxjk"]
    tokenizer = load("TikTokenizer", str(made.rank_file(tmp_path / "unreached.llama3.tiktoken", tokens)), threads=1)
    assert tokenizer.name == "gigatoken"
    expected = _encoding("llama3", tokens)
    texts = ["a qzxjk b", "qzxjk", " qzxjkl qzxjk<|eot_id|>"]
    assert rows(tokenizer, texts) == [_tiktoken(expected, text) for text in texts]
    assert len(tokens) - 1 in rows(tokenizer, texts)[0]


@pytest.mark.parametrize("name", ["gpt2.json", "tiny.cl100k_base.tiktoken"])
def test_after_much_text_gigatoken_begins_anew_with_the_same_ids(
    cases: dict[str, Case], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It remembers each word that it has met, so its memory would grow with the input."""
    once = load(cases[name].kind, str(cases[name].model), threads=1)
    monkeypatch.setattr(engines, "_REMEMBERED", 1_000)
    tokenizer = load(cases[name].kind, str(cases[name].model), threads=1)
    texts = proof.texts()[:600]
    before = vars(tokenizer)["engine"]._tokenizer
    assert [rows(tokenizer, texts) for _ in range(3)] == [rows(once, texts)] * 3
    assert vars(tokenizer)["engine"]._tokenizer is not before


@pytest.mark.full
def test_where_gigatoken_panics_the_reference_library_encodes(
    tmp_path: Path, gpt2: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    tokens = [*made.ranks(gpt2), b" qzxjk"]
    tokenizer = load("TikTokenizer", str(made.rank_file(tmp_path / "unreached.o200k_base.tiktoken", tokens)), threads=1)
    assert tokenizer.name == "tiktoken"
    assert "data: tiktoken encodes, gigatoken cannot: " in capfd.readouterr().err


@pytest.mark.full
@pytest.mark.parametrize("name", ["gpt2.json", "llama3.json", "own_split.json", "tiny.cl100k_base.tiktoken"])
def test_no_character_is_of_another_class_for_the_fast_library(cases: dict[str, Case], name: str) -> None:
    case = cases[name]
    tokenizer = case.load()
    assert tokenizer.name == case.encodes
    for start in range(0, 0x20000, 0x4000):
        characters = [chr(code) for code in range(start, start + 0x4000) if not 0xD800 <= code < 0xE000]
        texts = [f"a{one}b 1{one}2 {one}!{one}" for one in characters]
        different = [
            f"U+{ord(one):X}"
            for one, text, found in zip(characters, texts, rows(tokenizer, texts), strict=True)
            if found != list(case.expected(text))
        ]
        assert different == []


class TestASplitThatGigatokenDoesNotKnow:
    """tiktoken encodes where that is sure to give the same."""

    @pytest.fixture
    def told(self, folder: Path, cases: dict[str, Case]) -> Any:
        return json.loads((folder / "own_split.json").read_text(encoding="utf-8"))

    @staticmethod
    def encodes(folder: Path, told: Any) -> str:
        path = folder / "changed.json"
        path.write_text(json.dumps(told), encoding="utf-8")
        return load("HuggingFaceTokenizer", str(path), threads=1).name

    def test_a_text_on_which_its_regex_library_gives_up_is_encoded_by_the_reference(
        self, cases: dict[str, Case]
    ) -> None:
        case = cases["own_split.json"]
        tokenizer = case.load(threads=2)
        assert tokenizer.name == "tiktoken"
        texts = ["a b", " " * 1_000_000 + "x", "c<|endoftext|> d"]
        assert rows(tokenizer, texts) == [list(case.expected(text)) for text in texts]

    def test_what_the_post_processor_adds_is_added(self, tmp_path: Path, told: Any) -> None:
        from tokenizers import Tokenizer, processors

        tokenizer = Tokenizer.from_str(json.dumps(told))
        end = (made.END, tokenizer.token_to_id(made.END))
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{end[0]} $A {end[0]}", special_tokens=[end])
        tokenizer.save(str(tmp_path / "around.json"))
        found = load("HuggingFaceTokenizer", str(tmp_path / "around.json"), threads=1)
        assert found.name == "tiktoken"
        texts = ["", "a b", " " * 1_000_000 + "x"]
        assert rows(found, texts) == [tokenizer.encode(text).ids for text in texts]

    def test_merges_in_another_order_than_the_ids_are_left_to_tokenizers(self, tmp_path: Path, told: Any) -> None:
        assert self.encodes(tmp_path, told) == "tiktoken"
        merges = told["model"]["merges"]
        merges[-2], merges[-1] = merges[-1], merges[-2]
        assert self.encodes(tmp_path, told) == "tokenizers"

    def test_a_token_that_no_merges_lead_to_is_left_to_tokenizers(self, tmp_path: Path, told: Any) -> None:
        told["model"]["merges"].pop()
        assert self.encodes(tmp_path, told) == "tokenizers"

    @pytest.mark.parametrize(
        "change",
        [{"normalizer": {"type": "NFC"}}, {"added_tokens": "another"}, {"added_tokens": "lstrip"}, {"model": "words"}],
        ids=str,
    )
    def test_what_tiktoken_does_not_know_is_left_to_tokenizers(
        self, tmp_path: Path, told: Any, change: dict[str, Any]
    ) -> None:
        (token,) = told["added_tokens"]
        changes = {
            "another": [token, {**token, "id": token["id"] + 1, "content": f"{token['content']}>"}],
            "lstrip": [{**token, "lstrip": True}],
            "words": {**told["model"], "ignore_merges": True},
        }
        told.update(
            {name: changes.get(value, value) if isinstance(value, str) else value for name, value in change.items()}
        )
        assert self.encodes(tmp_path, told) == "tokenizers"


def test_numbers_are_their_own_ids() -> None:
    tokenizer = load("NullTokenizer", "", vocab_size=100)
    assert (tokenizer.vocab_size, tokenizer.eod, rows(tokenizer, ["1 2", "99"])) == (100, 99, [[1, 2], [99]])
    assert tokenizer.decode([1, 2]) == "1 2"
    for text in ("", "a", "100", "-1"):
        with pytest.raises(RequestError, match="is not made of numbers below 100"):
            tokenizer.encode([text])
    with pytest.raises(RequestError, match="needs the size of the vocabulary"):
        load("NullTokenizer", "")


_THREADS = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import numpy, awkward
from primus_data.tokenizers import load
os.environ["RAYON_NUM_THREADS"] = "7"
before = len(os.listdir("/proc/self/task"))
tokenizer = load("HuggingFaceTokenizer", sys.argv[1], threads=int(sys.argv[2]))
tokenizer.encode(["some text"] * 1000)
assert os.environ["RAYON_NUM_THREADS"] == "7"
print(len(os.listdir("/proc/self/task")) - before)
if not (child := os.fork()):
    ids, counts = tokenizer.encode(["some text"] * 1000)
    os._exit(int(len(counts) != 1000))
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "threads", "started"),
    # gigatoken has a pool of its own, unless it is one thread, beside that of the reference, which rests after loading.
    [("gpt2.json", 0, 1), ("gpt2.json", 3, 6), ("odd_split.json", 0, 1), ("odd_split.json", 3, 3)],
)
def test_no_more_threads_are_started_than_allowed_and_a_fork_encodes_too(
    cases: dict[str, Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, threads: int, started: int
) -> None:
    monkeypatch.setenv("PRIMUS_CACHE", str(tmp_path))
    command = (sys.executable, "-c", _THREADS, str(cases[name].model), str(threads))
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.returncode) == (f"{started}\n0\n", 0), done.stderr
