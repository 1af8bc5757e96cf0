"""Files and links appear whole or not at all."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import wait_until

from primus_machine.files.atomic import (
    create,
    link_atomically,
    open_to_append,
    read_regular,
    regular,
    staged,
    write_atomically,
)


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
        "import sys, itertools; from primus_machine.files.atomic import write_atomically\n"
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
from primus_machine.files.atomic import write_atomically

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
    staged = rf"a\.{re.escape(os.uname().nodename)}\.{pid}\.[0-9a-f]{{8}}\.partial"
    assert len(calls) == durable + 1
    assert all(re.fullmatch(f"sync {staged} 4" if "sync" in call else f"rename {staged}", call) for call in calls)
    assert calls[-1].startswith("rename")
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


def test_nobody_can_prepare_the_name_under_which_a_file_is_written(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    names = {os.path.basename(staged(str(tmp_path / "a"))) for _ in range(100)}
    assert len(names) == 100
    os.symlink(victim, tmp_path / "a.partial")
    for opener in (create, lambda path, _: create(path)):
        with pytest.raises(FileExistsError), open(tmp_path / "a.partial", "w", opener=opener):
            pass
    write_atomically(str(tmp_path / "a"), "x")
    assert victim.read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["a", "a.partial", "victim"]


def test_a_log_goes_through_a_link_of_ones_own_and_through_no_strangers(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("")
    os.symlink("log", tmp_path / "own")
    os.write(descriptor := open_to_append(str(tmp_path / "own")), b"x")
    assert os.get_blocking(descriptor), "a writer waits for a disk that is slow"
    os.close(descriptor)
    assert (tmp_path / "log").read_text() == "x"
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="No such device"):
        open_to_append(str(tmp_path / "fifo"))


def test_what_is_no_regular_file_is_not_read_and_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    assert read_regular(str(tmp_path / "file")) == b"text"
    assert read_regular(str(tmp_path / "file"), 2) == b"te"
    os.mkfifo(tmp_path / "fifo")
    os.symlink("file", tmp_path / "link")
    for name in ("fifo", "link"):
        with pytest.raises(OSError, match=r"regular file|symbolic links"):
            read_regular(str(tmp_path / name))


def test_a_file_that_is_missing_is_called_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), open(tmp_path / "file", opener=regular):
        pass
