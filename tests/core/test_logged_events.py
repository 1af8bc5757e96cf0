"""The page of the log lists the events of all packages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import ROOT

from primus_machine.files.atomic import append_line

SAID = r"""(?:\.emit|get_logger\(\)\.\w+|\blog\.\w+|\bsay)\(\s*"([a-z]+(?:_[a-z]+)*)", (?:\*\*|\w+=)"""


def test_the_page_names_every_event_that_primus_writes() -> None:
    page = (ROOT / "docs/logging.md").read_text(encoding="utf-8")
    sources = (ROOT / "packages").glob("*/src/**/*.py")
    found = {name for path in sources for name in re.findall(SAID, path.read_text(encoding="utf-8"))}
    assert {"run_started", "hang", "bench_progress", "test_loss"} <= found
    assert [name for name in sorted(found) if f"`{name}`" not in page] == []


LOSES = """
import resource, sys
from primus_core.journal.events import Events

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

events = Events(sys.argv[1])
events.emit("before")
limit(100)
for number in range(3):
    events.emit("lost", text="x" * 80)
limit(-1)
events.emit("after")
"""


def test_events_that_a_full_disk_takes_only_in_part_are_counted_and_the_next_one_is_whole(
    tmp_path: Path, clean_environ: dict[str, str]
) -> None:
    path = tmp_path / "events.jsonl"
    command = [sys.executable, "-c", LOSES, str(path)]
    done = subprocess.run(command, env=clean_environ, text=True, capture_output=True, check=True)
    first, torn, last = path.read_text(encoding="utf-8").splitlines()
    assert (json.loads(first)["event"], json.loads(last)["event"]) == ("before", "after")
    assert torn.startswith('{"time": ')
    begin, end = done.stderr.splitlines()
    assert begin.startswith(f"primus: WARNING: {path} cannot be written: No space left on device; lines of it are lost")
    assert end == f"primus: WARNING: {path} lacks 3 lines"


def test_events_go_through_a_link_of_ones_own_and_through_no_link_of_a_stranger(tmp_path: Path) -> None:
    if os.getuid():
        pytest.skip("only root can give a link away")
    (tmp_path / "file").touch()
    os.symlink("file", tmp_path / "strangers")
    os.lchown(tmp_path / "strangers", 65534, 65534)
    os.symlink("strangers", tmp_path / "through")
    os.symlink("file", tmp_path / "own")
    for name in ("strangers", "through"):
        with pytest.raises(OSError, match="symbolic links"):
            append_line(str(tmp_path / name), "{}")
    append_line(str(tmp_path / "own"), "{}")
    assert (tmp_path / "file").read_text() == "{}\n"
