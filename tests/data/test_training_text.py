"""Text that is on the machine is prepared once; what a stranger put in its place is not believed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.core.test_trust import STRANGER, give, home, needs_root

from primus_core.errors import RequestError
from primus_data.sources.walk import LeftOut
from primus_data.training import files, prepare

__all__ = ["home"]


def folder_of_text(tmp_path: Path) -> Path:
    """Files of which three are texts, and others that are left out for a reason each."""
    folder = tmp_path / "text"
    (folder / "more").mkdir(parents=True)
    (folder / "a.txt").write_bytes(b"\xef\xbb\xbfmarked")
    (folder / "b.md").write_text("plain")
    (folder / "more/a.txt").write_text("the second of this name")
    (folder / "latin.txt").write_bytes("café".encode("latin-1"))
    (folder / "wide.txt").write_bytes("wide".encode("utf-16"))
    (folder / "empty.txt").touch()
    (folder / "blank.txt").write_bytes(b"\xef\xbb\xbf \n")
    (folder / "zeros.txt").write_bytes(b"a\0b")
    (folder / "large.txt").write_bytes(b"x" * (files.LARGEST_FILE + 1))
    (folder / "table.csv").write_text("a,b")
    (folder / "z.txt").symlink_to("a.txt")
    (folder / "hard.txt").hardlink_to(folder / "b.md")
    (folder / "gone.txt").symlink_to("nowhere.txt")
    return folder


def test_ctrl_c_while_text_is_prepared_leaves_nothing_and_no_traceback(tmp_path: Path) -> None:
    def write(*_: object) -> None:
        raise KeyboardInterrupt

    words = ["--source", str(folder_of_text(tmp_path)), "--vocab-size", "300", "--cache", str(tmp_path / "cache")]
    with pytest.raises(SystemExit) as ended:
        files.main("x", write, "kind", [*words, "--out", str(tmp_path / "out")])
    assert ended.value.code == 130
    assert list((tmp_path / "cache").iterdir()) == []


def test_what_is_left_out_of_a_folder_of_text_is_counted_and_named(tmp_path: Path) -> None:
    texts, left_out = files.documents(str(folder_of_text(tmp_path)))
    assert texts == [("a.txt", "marked"), ("b.md", "plain"), ("a.txt", "the second of this name")]
    assert {why.partition(" than")[0]: names for why, names in left_out.names.items()} == {
        "not UTF-8": ["latin.txt", "wide.txt"],
        "empty": ["blank.txt", "empty.txt"],
        "binary": ["zeros.txt"],
        "larger": ["large.txt"],
        "of other kinds": ["table.csv"],
        "linking to a file that is read already": ["hard.txt", "z.txt"],
        "linking to nothing": ["gone.txt"],
    }
    assert "2 not UTF-8 (latin.txt, wide.txt)" in str(left_out)


def test_a_folder_of_ones_own_is_read_whole_except_hidden_files_caches_and_linked_folders(tmp_path: Path) -> None:
    folder = tmp_path / "text"
    read = ["config-x/a.md", "test/b.txt", "tests/c.txt", "site-packages/d.py"]
    for name in (*read, ".git/e.txt", "tests/__pycache__/f.txt", ".g.txt", "../other/h.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "more").symlink_to("../other")
    texts, left_out = files.documents(str(folder))
    assert [text for _, text in texts] == sorted(read)
    assert str(left_out) == (
        "1 caches of Python (tests/__pycache__/); 2 hidden (.g.txt, .git/); 1 linking to a folder (more/)"
    )
    assert files.has_text(str(folder), LeftOut())
    for name in read:
        (folder / name).unlink()
    assert not files.has_text(str(folder), LeftOut())


def test_of_a_text_and_a_link_to_it_the_link_is_left_out_whichever_sorts_first(tmp_path: Path) -> None:
    for name in ("b.txt", "z.txt"):
        (tmp_path / name).write_text(name)
    (tmp_path / "a.txt").symlink_to("z.txt")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/.c.txt").write_text("of a link alone")
    (tmp_path / "c.txt").symlink_to("elsewhere/.c.txt")
    texts, left_out = files.documents(str(tmp_path))
    assert texts == [("b.txt", "b.txt"), ("c.txt", "of a link alone"), ("z.txt", "z.txt")]
    assert left_out.names["linking to a file that is read already"] == ["a.txt"]


def test_a_folder_without_text_says_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff")
    with pytest.raises(RequestError, match=r"no text in .*; left out: 1 not UTF-8 \(a\.txt\)"):
        files.documents(str(tmp_path))


def test_too_little_text_says_which_vocabulary_it_gives_to_tokenizer_and_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--source", str(folder_of_text(tmp_path)), "--cache", str(tmp_path / "cache")]
    words += ["--out", str(tmp_path / "out"), "--vocab-size"]
    with pytest.raises(SystemExit) as ended:
        files.main("x", prepare.write, "kind", [*words, "2048"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    made = re.search(r"error: the text gives (\d+) tokens, not 2047\n  fix: use more text, or ", said)
    assert made
    assert f"data.vocab_size={made[1]} model.vocab_size={made[1]} under TorchTitan" in said
    assert f"data.vocab_size={made[1]} vocab_size={made[1]} under Megatron and MaxText" in said
    files.main("x", prepare.write, "kind", [*words, made[1]])


@needs_root
def test_text_that_a_stranger_prepared_is_not_trained_on(
    tmp_path: Path, home: Path, clean_environ: dict[str, str], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """In a cache that others can write to, they know the name that the result will have."""
    (tmp_path / "text").mkdir()
    (tmp_path / "text/a.txt").write_text("abc")
    words = ["--source", f"{tmp_path}/text", "--vocab-size", "300", "--cache", f"{tmp_path}/cache"]

    def prepare(out: str) -> None:
        files.main("x", lambda folder, *_: None, "kind", [*words, "--out", f"{tmp_path}/{out}"])

    prepare("one")
    prepare("two")
    assert (tmp_path / "one").resolve() == (tmp_path / "two").resolve()
    give((tmp_path / "one").resolve())
    with pytest.raises(SystemExit) as ended:
        prepare("three")
    assert ended.value.code == 2
    assert f"it belongs to uid {STRANGER}" in capsys.readouterr().err
    assert not (tmp_path / "three").exists()
    monkeypatch.setenv("PRIMUS_TRUSTED", f"{tmp_path}/cache")
    prepare("three")
