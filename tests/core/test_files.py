"""Files and links appear whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import wait_until

from primus_core.files import link_atomically, write_atomically


def test_a_file_is_written_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for text in ("first", "ünï\n", ""):
        write_atomically(str(path), text)
        assert path.read_text(encoding="utf-8") == text
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(str(path), "new \ud800")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.json"]
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_atomically(str(tmp_path / "folder"), "text")
    assert sorted(os.listdir(tmp_path)) == ["a.json", "folder"]


def test_a_writer_that_is_killed_leaves_a_whole_file(tmp_path: Path, clean_environ: dict[str, str]) -> None:
    path = tmp_path / "a"
    code = (
        "import sys, itertools; from primus_core.files import write_atomically\n"
        "for n in itertools.count(): write_atomically(sys.argv[1], str(n % 10) * 3_000_000)"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(path)], env=clean_environ)
    wait_until(path.exists)
    for _ in range(5):
        text = path.read_text()
        assert len(text) == 3_000_000
        assert len(set(text)) == 1
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    assert len(path.read_text()) == 3_000_000


@pytest.mark.parametrize("durable", [True, False])
def test_a_durable_file_is_on_disk_before_it_has_its_name(
    tmp_path: Path, clean_environ: dict[str, str], durable: bool
) -> None:
    code = """
import os, sys
from primus_core.files import write_atomically

fsync, replace = os.fsync, os.replace

def synced(descriptor):
    print("sync", os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")), os.fstat(descriptor).st_size)
    fsync(descriptor)

def renamed(old, new):
    print("rename", os.path.basename(old))
    replace(old, new)

os.fsync, os.replace = synced, renamed
print(os.getpid())
write_atomically(sys.argv[1], "text", durable=sys.argv[2] == "True")
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a"), str(durable)],
        env=clean_environ,
        text=True,
        capture_output=True,
        check=True,
    )
    pid, *calls = done.stdout.splitlines()
    staged = f"a.{os.uname().nodename}.{pid}.partial"
    assert calls == [f"sync {staged} 4"] * durable + [f"rename {staged}"]
    assert (tmp_path / "a").read_text() == "text"


def test_a_link_is_made_and_moved(tmp_path: Path) -> None:
    link = tmp_path / "newest"
    for target in ("run_1", "run_2"):
        assert link_atomically(target, str(link))
        assert os.readlink(link) == target
    assert os.listdir(tmp_path) == ["newest"]


def test_a_link_to_a_folder_is_replaced_itself(tmp_path: Path) -> None:
    (tmp_path / "run_1").mkdir()
    link_atomically("run_1", str(tmp_path / "newest"))
    link_atomically("run_2", str(tmp_path / "newest"))
    assert os.listdir(tmp_path / "run_1") == []


def test_what_is_no_link_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "newest").mkdir()
    assert not link_atomically("run_1", str(tmp_path / "newest"))
    assert (tmp_path / "newest").is_dir()


def test_what_a_killed_process_of_the_same_id_left_is_in_nobodys_way(tmp_path: Path) -> None:
    link = tmp_path / "newest"
    mine = f"{os.uname().nodename}.{os.getpid()}.partial"
    os.symlink("stale", f"{link}.{mine}")
    (tmp_path / f"a.{mine}").write_text("stale")
    assert link_atomically("run_1", str(link))
    write_atomically(str(tmp_path / "a"), "x")
    assert sorted(os.listdir(tmp_path)) == ["a", "newest"]
