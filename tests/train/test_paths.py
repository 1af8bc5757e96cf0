"""Paths in an experiment are relative to its file, on the command line to the folder where it is typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_core.config.document import Document
from primus_train.paths import PathKind, anchored

KINDS: dict[str, PathKind] = {
    "load": "path",
    "save": "output",
    "tokenizer": "name",
    "checkpoint.from": "path",
    "files": "mixture",
}


def settle(name: str, value: object, mark: str = "exp/deep/a.yaml:3", cwd: str = "/home/me") -> object:
    """One setting, as a backend gets it."""
    *around, last = name.split(".")
    data: dict[str, object] = {last: value}
    for part in reversed(around):
        data = {part: data}
    path = tuple(name.split("."))
    files = ("exp/deep/a.yaml", "/srv/base.yaml", "/packages/presets/b.yaml")
    found = anchored(Document(data, {path: mark}, files), KINDS, cwd, ("/packages/presets/",))
    value = found.data
    for part in path:
        assert isinstance(value, dict)
        value = value[part]
    return value


@pytest.mark.parametrize(
    ("name", "value", "becomes"),
    [
        ("data.text", "corpus", "/home/me/exp/deep/corpus"),
        ("data.text", "../corpus", "/home/me/exp/corpus"),
        ("data.text", "/srv/corpus", "/srv/corpus"),
        ("data.text", "python-stdlib", "python-stdlib"),
        ("data.input", ["a b.jsonl", "c/*.gz"], ["/home/me/exp/deep/a b.jsonl", "/home/me/exp/deep/c/*.gz"]),
        ("data.tokenizer_model", "t.json", "/home/me/exp/deep/t.json"),
        ("data.train_data_path", "web", "/home/me/exp/deep/web"),
        ("data.train_data_path", "web 0.7 books", "/home/me/exp/deep/web 0.7 /home/me/exp/deep/books"),
        ("data.train_data_path", [0.7, "web", 0.3, "my books"], [0.7, "/home/me/exp/deep/web", 0.3, "/home/me/exp/deep/my books"]),
        ("data.train_data_path", "3 web 1 books", "3 /home/me/exp/deep/web 1 /home/me/exp/deep/books"),
        ("checkpoint.from", "step-5", "/home/me/exp/deep/step-5"),
        ("load", "s3://bucket/x", "s3://bucket/x"),
        ("files", "a/*,0.7;gs://b/c,0.3", "/home/me/exp/deep/a/*,0.7;gs://b/c,0.3"),
        ("tokenizer", "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("other", "corpus", "corpus"),
    ],
)  # fmt: skip
def test_a_path_of_an_experiment_is_relative_to_its_file(name: str, value: object, becomes: object) -> None:
    assert settle(name, value) == becomes


def test_folders_to_write_in_are_relative_to_the_current_folder_and_so_is_what_is_loaded_from_them() -> None:
    given = {"save": "ckpt", "load": "ckpt"}
    marks: dict[tuple[str | int, ...], str] = {("save",): "exp/a.yaml:1", ("load",): "exp/a.yaml:2"}
    found = anchored(Document(dict(given), marks, ("exp/a.yaml",)), KINDS, "/home/me", ())
    assert found.data == {"save": "/home/me/ckpt", "load": "/home/me/ckpt"}


@pytest.mark.parametrize(
    ("mark", "becomes"),
    [
        ("command line", "/home/me/corpus"),
        ("command line: data.text=corpus", "/home/me/corpus"),
        ("/srv/base.yaml:7", "/srv/corpus"),
        ("/packages/presets/b.yaml:1", "/home/me/corpus"),
        ("", "/home/me/corpus"),
    ],
)
def test_it_depends_on_who_names_the_path(mark: str, becomes: str) -> None:
    assert settle("data.text", "corpus", mark) == becomes


def test_a_tokenizer_beside_the_experiment_wins_over_a_name(tmp_path: Path) -> None:
    (tmp_path / "exp/deep/meta").mkdir(parents=True)
    assert settle("tokenizer", "meta", cwd=str(tmp_path)) == f"{tmp_path}/exp/deep/meta"


def test_a_text_of_paths_becomes_a_list_where_the_folder_has_blanks() -> None:
    assert settle("data.train_data_path", "web books", cwd="/my home") == [
        "/my home/exp/deep/web",
        "/my home/exp/deep/books",
    ]
