"""Nodes that are stopped for long, and commands that come between: nothing of one preparation gets into another."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.data.conftest import Prepare, as_lines

from primus_core.errors import RequestError
from primus_data.fetching import folder as fetching
from primus_data.preparing import claims, outputs, preparation
from primus_data.preparing.folder import Folder
from primus_data.quality.work import Work
from primus_machine.host import HostRoot


def stopped(folder: Path, tokenizer_file: str, environ: dict[str, str]) -> subprocess.Popen[str]:
    """A process that prepares `in.jsonl`, stopped after its first parts."""
    words = ("prepare", "--input", "in.jsonl", "--output-prefix", "out", "--tokenizer-model", tokenizer_file)
    command = [sys.executable, "-m", "primus_data.worker", *words, "--partitions", "400"]
    process = subprocess.Popen(
        command, cwd=folder, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    wait_until(lambda: len(list(folder.glob(".out.preparing/*/0*"))) > 2 or process.poll() is not None)
    process.send_signal(signal.SIGSTOP)
    assert process.poll() is None
    return process


@pytest.mark.full
def test_a_node_that_wakes_up_in_another_preparation_leaves_it_alone(
    texts: list[str],
    tokenizer_file: str,
    prepare: Prepare,
    tmp_path: Path,
    clean_environ: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "in.jsonl").write_bytes(as_lines(texts) * 4)
    process = stopped(tmp_path, tokenizer_file, clean_environ)
    monkeypatch.setattr(preparation, "SILENT_S", 0.0)
    again = ("--input", "in.jsonl", "--discard-unfinished", "--partitions", "3")
    with pytest.raises(RequestError, match="another process works on the unfinished preparation"):
        prepare(*again)
    shutil.rmtree(tmp_path / ".out.preparing")  # by hand
    folder = Folder(str(tmp_path / ".out.preparing"), HostRoot())
    folder.open({"another": "preparation"}, 7, "")
    process.send_signal(signal.SIGCONT)
    assert "another command has discarded it" in process.communicate(timeout=300)[1]
    assert process.returncode == 1
    assert not folder.finished()
    assert not list(tmp_path.glob("out_*"))


def test_a_claim_that_was_taken_over_is_not_given_back_by_its_former_owner(tmp_path: Path) -> None:
    with claims.Claims(str(tmp_path), HostRoot()) as mine:
        assert mine.take("000000")
        (tmp_path / "000000.claim").unlink()
        (tmp_path / "000000.claim").write_text('{"host": "another"}')
        mine.release("000000")
    assert (tmp_path / "000000.claim").exists()


@pytest.mark.full
def test_a_node_that_was_stopped_while_it_put_its_output_changes_nothing_of_what_others_have_put(
    texts: list[str], prepare: Prepare, tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_bytes(as_lines(texts[:9]))
    assert prepare("--input", "in.jsonl") == 0
    there = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(FileNotFoundError):
        outputs.put(str(tmp_path / ".out.preparing/1f/joined.partial/0"), "out_text_document", {})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == there
    assert "out_text_document.idx" in os.listdir(tmp_path)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_unfinished_work_of_a_stranger_is_refused_as_it_may_hold_links(tmp_path: Path) -> None:
    for folder in (tmp_path / "fetched/.fetch", tmp_path / "filtered.unfinished"):
        folder.mkdir(parents=True)
        os.chown(folder, 4711, 4711)
    with pytest.raises(RequestError, match=r"the unfinished fetch in .* is not trusted"):
        fetching.Folder(str(tmp_path / "fetched"))
    with (
        pytest.raises(RequestError, match=r"the unfinished work in .* is not trusted"),
        Work(str(tmp_path / "filtered")).opened({}),
    ):
        pass
