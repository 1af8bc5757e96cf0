"""What was found out about a tokenizer is kept: later commands load gigatoken alone, and believe only their own cache."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.data.conftest import EOD

from primus_data.tokenizers import Tokenizer, load

pytest.importorskip("gigatoken")

_LOAD = """
import json, sys
from primus_data.tokenizers import load
tokenizer = load("HuggingFaceTokenizer", sys.argv[1])
ids, counts = tokenizer.encode(["some text", "", "é<|endoftext|>"])
loaded = [name for name in ("tokenizers", "awkward") if name in sys.modules]
print(json.dumps([tokenizer.name, tokenizer.vocab_size, tokenizer.eod, ids.tolist(), counts.tolist(), loaded]))
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of what is kept, which is empty."""
    monkeypatch.setenv("PRIMUS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache/tokenizers"


def answers(cache: Path) -> dict[Path, object]:
    """All that is kept."""
    return {path: json.loads(path.read_text()) for path in cache.iterdir()}


def loaded(model: str) -> Tokenizer:
    return load("HuggingFaceTokenizer", model)


def test_a_later_command_loads_neither_the_reference_library_nor_awkward(cache: Path, tokenizer_file: str) -> None:
    command = (sys.executable, "-c", _LOAD, tokenizer_file)
    first, second = (json.loads(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(2))
    assert first == ["gigatoken", 1000, 0, *second[3:5], ["tokenizers"]]
    assert second == [*first[:5], []]
    assert len(answers(cache)) == 2


def forget_end(cache: Path) -> None:
    """Another end of a document, as somebody else might write it."""
    for path, answer in answers(cache).items():
        if isinstance(answer, dict):
            path.write_text(json.dumps(answer | {"eod": 7}))
            path.chmod(0o666)


def damage(cache: Path) -> None:
    for path in answers(cache):
        path.write_text('{"eod"')


def replace_ids(cache: Path) -> None:
    """Another digest than that of the reference library's ids."""
    for path, answer in answers(cache).items():
        if isinstance(answer, str):
            path.write_text(json.dumps("0" * 64))


@pytest.mark.parametrize("change", [forget_end, damage, replace_ids])
def test_what_is_not_ones_own_damaged_or_wrong_is_found_out_again(
    cache: Path, tokenizer_file: str, change: Callable[[Path], None]
) -> None:
    first = loaded(tokenizer_file)
    before = answers(cache)
    change(cache)
    again = loaded(tokenizer_file)
    assert (
        (again.name, again.eod, again.vocab_size)
        == ("gigatoken", first.eod, first.vocab_size)
        == ("gigatoken", 0, 1000)
    )
    assert change is forget_end or answers(cache) == before


def test_another_content_is_another_tokenizer(cache: Path, tokenizer_file: str, tmp_path: Path) -> None:
    model = tmp_path / "tokenizer.json"
    known = json.loads(Path(tokenizer_file).read_text())
    for end in (EOD, "</s>"):
        text = json.dumps(known).replace(EOD, end)
        model.write_text(text)
        found = loaded(str(model))
        assert (found.eod, found.encode([f"a{end}"])[0].tolist()[-1]) == (0, 0)
        assert 0 not in found.encode([f"a{'</s>' if end == EOD else EOD}"])[0]
    (tmp_path / "tokenizer_config.json").write_text('{"pad_token": "<pad>"}')
    assert [loaded(str(model)).vocab_size for _ in range(2)] == [1001, 1001]


def test_without_room_for_it_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer_file: str
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PRIMUS_CACHE", str(tmp_path / "file"))
    assert [loaded(tokenizer_file).name for _ in range(2)] == ["gigatoken"] * 2


@pytest.mark.full
def test_awkward_stays_what_it_is_for_others_and_gigatoken_still_imports_it(tokenizer_file: str) -> None:
    import awkward
    from gigatoken import Tokenizer as Gigatoken

    texts = ["some text", "", "more of it"]
    ids, counts = loaded(tokenizer_file).encode(texts)
    assert sys.modules["awkward"] is awkward
    found = Gigatoken(tokenizer_file).encode_batch(texts)
    assert isinstance(found, awkward.Array)  # once it gives arrays of numpy, `_without_awkward` is needed no more
    assert (awkward.flatten(found).tolist(), awkward.num(found).tolist()) == (ids.tolist(), counts.tolist())
