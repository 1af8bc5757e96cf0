"""`data blend`: weights, epochs, and files that an experiment and Megatron read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.data.prepared import as_json, data, poke, write

from primus_core.config import files
from primus_core.errors import ConfigError, MachineError, RequestError, SeveralErrors


@pytest.fixture
def web(tmp_path: Path) -> str:
    """3000 tokens."""
    return write(tmp_path / "web", [[[1] * 1000]] * 3)


@pytest.fixture
def books(tmp_path: Path) -> str:
    """1000 tokens."""
    return write(tmp_path / "books", [[[2] * 1000]])


def test_without_weights_each_token_counts_the_same(web: str, books: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, "blend", "--input", web, f"{books}.bin")
    assert found["data_path"] == [0.75, web, 0.25, books]
    assert [one["epochs"] for one in found["sources"]] == [None, None]
    warmer = as_json(capsys, "blend", "--input", web, books, "--temperature", "2")
    assert warmer["data_path"][0] == pytest.approx(3**0.5 / (1 + 3**0.5))


def test_epochs_of_each_input_are_shown_and_many_are_warned_of(
    web: str, books: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("blend", "--input", f"{web}=0.3", f"{books}=0.7")
    found = as_json(capsys, *words, "--tokens", "10k")
    assert [(one["drawn"], one["epochs"]) for one in found["sources"]] == [(3000, 1), (7000, 7)]
    assert as_json(capsys, *words, "--samples", "20", "--seq-len", "500") == found
    assert data(*words, "--tokens", "10k") == 0
    shown = capsys.readouterr()
    assert [line.split()[1:] for line in shown.out.splitlines()[2:]] == [
        ["3,000", "0.3000", "3,000", "1.00"],
        ["1,000", "0.7000", "7,000", "7.00"],
    ]
    assert "books is repeated 7.0 times" in shown.err
    assert "web" not in shown.err
    assert data(*words, "--tokens", "10k", "--max-epochs", "7") == 0
    assert not capsys.readouterr().err


def test_without_a_number_of_tokens_it_says_when_an_input_was_seen_once(
    web: str, books: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert data("blend", "--input", f"{web}=1", f"{books}=4") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("seen once after")
    assert [line.split()[-1] for line in lines[2:]] == ["15,000", "1,250"]


def test_the_files_say_the_same_and_are_read_again(
    tmp_path: Path, web: str, books: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = [tmp_path / f"blend.{suffix}" for suffix in ("yaml", "txt", "json")]
    words = [word for path in outputs for word in ("--output", path)]
    found = as_json(capsys, "blend", "--input", f"{web}=2", f"{books}=1", *words)
    assert files.read(str(outputs[0]), {}).data == {"train_data_path": [0.666666667, web, 0.333333333, books]}
    assert outputs[1].read_text().split() == ["0.666666667", web, "0.333333333", books]
    assert json.loads(outputs[2].read_text()) == found
    for path in outputs:
        assert as_json(capsys, "blend", "--file", path)["data_path"] == found["data_path"]
    with pytest.raises(RequestError, match=r"blend\.yaml' exists"):
        data("blend", "--input", web, "--output", outputs[0])


def test_a_path_with_a_space_is_written_to_yaml_and_refused_for_megatrons_words(tmp_path: Path) -> None:
    prefix = write(tmp_path / "my web", [[[1]]])
    assert data("blend", "--input", prefix, "--output", tmp_path / "blend.yaml") == 0
    assert files.read(str(tmp_path / "blend.yaml"), {}).data == {"train_data_path": [1, prefix]}
    with pytest.raises(RequestError, match="has a space"):
        data("blend", "--input", prefix, "--output", tmp_path / "blend.txt")
    assert not (tmp_path / "blend.txt").exists()


def test_an_equals_sign_belongs_to_the_path_if_no_number_follows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kind=a").mkdir()
    prefix = write(tmp_path / "kind=a/web", [[[1]]])
    assert as_json(capsys, "blend", "--input", prefix)["data_path"] == [1, prefix]


def test_mistakes_are_refused_at_once(web: str, books: str) -> None:
    words = ("--samples", "3", "--temperature", "3", "--output", "x.csv")
    with pytest.raises(SeveralErrors) as refused:
        data("blend", "--input", f"{web}=3", books, web, *words)
    assert [one.what.split("'")[-1].strip() for one in refused.value.errors] == [
        "has no weight, and others have one",
        "is in the blend twice",
        "--temperature and weights contradict each other",
        "--samples and --seq-len belong together",
        "has no known suffix",
    ]
    for wrong in (f"{web}=0", f"{web}=-1", f"{web}=nan", f"{web}=inf"):
        with pytest.raises(RequestError, match="no weight greater than 0"):
            data("blend", "--input", wrong)
    with pytest.raises(RequestError, match=r"'0\.7' is a number: write a weight as PREFIX=WEIGHT"):
        data("blend", "--input", "0.7", web, "0.3", books)
    with pytest.raises(SeveralErrors) as refused:
        data("blend", "--input", f"{web}:0.7")
    assert refused.value.errors[0].fix == f"a weight stands behind '=': {web}=0.7"
    with pytest.raises(RequestError, match="one of --input and --file is needed"):
        data("blend")


def test_data_that_cannot_be_trained_on_is_refused(tmp_path: Path, web: str, books: str) -> None:
    poke(web, 18, "<Q", 1 << 60)
    empty = write(tmp_path / "empty", [[]])
    with pytest.raises(SeveralErrors) as refused:
        data("blend", "--input", web, books, empty)
    assert [one.what for one in refused.value.errors] == [
        f"the data '{prefix}' cannot be trained on" for prefix in (web, empty)
    ]
    with pytest.raises(MachineError, match="cannot be trained on"):
        data("blend", "--input", web)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("x.yaml", "train_data_path: {a: 1}", "there is no list 'train_data_path'"),
        ("x.yaml", "other: 1", "there is no list 'train_data_path'"),
        ("x.yaml", "train_data_path: [1, a, 2, [b]]", r"\['b'\] is not a path"),
        ("x.yaml", "data_path: [-1, a]", "'a' has the weight -1"),
        ("x.yaml", "data_path: [.nan, a]", "'a' has the weight nan"),
        ("x.txt", "1 a 2", "'1.bin' not found"),
        ("x.txt", "\udcff", "it is not UTF-8"),
        ("x.json", "{", "x.json"),
    ],
)
def test_a_file_that_is_no_blend_is_refused(tmp_path: Path, name: str, text: str, told: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises((ConfigError, RequestError), match=told):
        data("blend", "--file", path)
