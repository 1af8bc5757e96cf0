"""What is believed of a run directory, and what is not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.run_directories import here, make, seal

from primus_core.errors import RequestError
from primus_core.runs.names import parse_name
from primus_core.runs.saved import Damaged, load
from primus_core.runs.snapshot_form import dump, parse_env_dump
from primus_core.runs.state import is_run, state
from primus_machine.host import HostRoot

HOST = HostRoot()


def test_a_whole_snapshot_is_read_with_all_its_parts(tmp_path: Path) -> None:
    patch = "diff --git a/train.py b/train.py\n--- a/train.py\n+++ b/train.py\n"
    directory = make(tmp_path, environ={"MESSAGE": "two\nlines \\n"}, code={"dirty": True}, patch=patch)
    saved = load(str(directory))
    assert saved.directory == str(directory)
    assert saved.record.status == "completed"
    assert saved.plan["schema"] == 2
    assert saved.environment["MESSAGE"] == "two\nlines \\n"
    assert saved.packages == {"torch": "2.9.0", "primus-core": "0.1.0"}
    assert saved.system["gpu_model"] == "MI300X"
    assert saved.code["changed"] == ["train.py"]
    assert saved.configs["primus_config"] == {"exp_name": "small", "workspace": "./output"}
    assert saved.configs["backend_config"]["settings"]["optimizer.lr"] == 0.004
    assert saved.schema == 1
    assert len(saved.files["env/packages.txt"]) == 64


def test_a_run_that_goes_on_can_be_read(tmp_path: Path) -> None:
    assert load(str(make(tmp_path, metadata=here()))).record.status == "started"


def test_a_snapshot_without_its_marker_is_incomplete(tmp_path: Path) -> None:
    directory = make(tmp_path, metadata=here(status="preparing", pid=0))
    (directory / "snapshot.json").unlink()
    with pytest.raises(Damaged, match=f"{directory.name} has no complete snapshot") as raised:
        load(str(directory))
    assert raised.value.exit_code == 3


def test_a_folder_that_has_only_the_name_of_a_run_is_incomplete(tmp_path: Path) -> None:
    directory = tmp_path / "small_2026_11_21_101526"
    directory.mkdir()
    with pytest.raises(Damaged, match="has no complete snapshot"):
        load(str(directory))


def test_where_the_newest_run_of_an_experiment_has_no_snapshot_an_earlier_one_is_named(tmp_path: Path) -> None:
    for name in ("small_2026_11_18_101526", "small_2026_11_19_101526", "other_2026_11_20_101526"):
        make(tmp_path, name)
    newest = tmp_path / "small_2026_11_21_101526"
    newest.mkdir()
    with pytest.raises(Damaged) as raised:
        load(str(newest))
    assert raised.value.fix.endswith("\nthe newest run of 'small' that has one is small_2026_11_19_101526")


def test_an_old_run_that_ended_is_not_said_to_be_cut_short(tmp_path: Path) -> None:
    directory = make(tmp_path)
    (directory / "snapshot.json").unlink()
    with pytest.raises(Damaged, match="has no complete snapshot") as raised:
        load(str(directory))
    assert "earlier version" in raised.value.why


def test_a_snapshot_of_another_schema_names_the_version_that_wrote_it(tmp_path: Path) -> None:
    directory = make(tmp_path, metadata={"primus_version": "9.1"})
    seal(directory, schema=99)
    with pytest.raises(Damaged, match="snapshot schema 99 is not 1") as raised:
        load(str(directory))
    assert raised.value.fix == "use the Primus version that wrote it: 9.1"


@pytest.mark.parametrize("path", ["env/packages.txt", "code/diff.patch", "config/backend_config.json", "plan.json"])
def test_a_file_that_was_deleted_is_named(tmp_path: Path, path: str) -> None:
    directory = make(tmp_path)
    (directory / path).unlink()
    with pytest.raises(Damaged, match=f"{directory.name}: {path} is missing"):
        load(str(directory))


def test_every_flipped_byte_is_found(tmp_path: Path) -> None:
    directory = make(tmp_path)
    path = directory / "env/gpu_model.txt"
    whole = path.read_bytes()
    for index in range(len(whole)):
        path.write_bytes(whole[:index] + bytes([whole[index] ^ 1]) + whole[index + 1 :])
        with pytest.raises(Damaged, match=r"env/gpu_model\.txt is damaged") as raised:
            load(str(directory))
        assert "checksum" in raised.value.why


def test_a_file_cut_short_says_by_how_much(tmp_path: Path) -> None:
    directory = make(tmp_path)
    (directory / "env/packages.txt").write_text("torch")
    with pytest.raises(Damaged) as raised:
        load(str(directory))
    assert raised.value.why == "it has 5 bytes, but had 32 when it was written"


def test_a_file_that_is_a_folder_now_is_named(tmp_path: Path) -> None:
    directory = make(tmp_path)
    (directory / "plan.json").unlink()
    (directory / "plan.json").mkdir()
    with pytest.raises(Damaged, match=r"plan\.json cannot be read"):
        load(str(directory))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\udcff", "[" * 100_000])
@pytest.mark.parametrize("path", ["snapshot.json", "metadata.json"])
def test_damaged_json_is_named(tmp_path: Path, path: str, text: str) -> None:
    directory = make(tmp_path)
    (directory / path).write_text(text, errors="surrogateescape")
    with pytest.raises(Damaged, match=f"{path} is damaged: it is no JSON|{path} is damaged"):
        load(str(directory))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("plan.json", "{"),
        ("env/system_info.json", "[]"),
        ("env/primus_env_dump.txt", "no equals sign\n"),
        ("env/primus_env_dump.txt", "A=\\q\n"),
        ("config/primus_config.yaml", "a: [\n"),
        ("config/primus_config.yaml", "a: !!python/object:os.system {}\n"),
    ],
)
def test_what_was_written_wrong_and_sealed_is_named(tmp_path: Path, path: str, text: str) -> None:
    with pytest.raises(Damaged, match=f"{path} is damaged"):
        load(str(make(tmp_path, files={path: text})))


@pytest.mark.parametrize(
    "files",
    [
        None,
        [],
        {},
        {"plan.json": "x"},
        {"../../etc/passwd": {"sha256": "", "bytes": 0}},
        {"/etc/passwd": {"sha256": "", "bytes": 0}},
    ],
)
def test_a_manifest_that_does_not_list_what_a_snapshot_has_is_refused(tmp_path: Path, files: object) -> None:
    directory = make(tmp_path)
    (directory / "snapshot.json").write_text(json.dumps({"schema": 1, "files": files}))
    with pytest.raises(Damaged, match=r"snapshot\.json is damaged"):
        load(str(directory))


def test_a_folder_that_is_no_run_is_a_wrong_request_with_a_suggestion(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "other").mkdir()
    with pytest.raises(RequestError, match="is not a run directory"):
        load(str(tmp_path / "other"))
    with pytest.raises(RequestError, match="is not there") as raised:
        load(str(tmp_path / "small_2026_11_21_101525"))
    assert raised.value.fix == "did you mean 'small_2026_11_21_101526'?"
    assert raised.value.exit_code == 2


def test_a_moved_run_is_as_good_as_before(tmp_path: Path) -> None:
    directory = make(tmp_path)
    shutil.move(directory, tmp_path / "archive")
    assert load(str(tmp_path / "archive")).record.run_id == directory.name


@pytest.mark.parametrize("status", ["completed", "failed", "interrupted"])
def test_a_run_that_says_how_it_ended_is_believed(tmp_path: Path, status: str) -> None:
    directory = make(tmp_path, metadata={"status": status})
    assert state(str(directory), HOST) == status
    (directory / "snapshot.json").unlink()  # as in runs before there were snapshots
    assert state(str(directory), HOST) == status


def test_a_run_whose_process_lives_is_running(tmp_path: Path) -> None:
    directory = make(tmp_path, metadata=here(started=HOST.now()))
    assert state(str(directory), HOST) == "running"
    (directory / "snapshot.json").unlink()
    assert state(str(directory), HOST) == "running"


def test_a_run_whose_process_has_gone_is_lost(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    directory = make(tmp_path, metadata=here(pid=gone.pid, started=HOST.now()))
    assert state(str(directory), HOST) == "lost"


def test_a_process_that_ended_and_was_not_waited_for_runs_no_more(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        directory = make(tmp_path, metadata=here(pid=child.pid, started=HOST.now()))
        assert state(str(directory), HOST) == "lost"


def test_a_later_process_with_the_same_number_is_not_the_run(tmp_path: Path) -> None:
    directory = make(tmp_path, metadata=here(started=HOST.now() - 365 * 86400))
    assert state(str(directory), HOST) == "lost"


def test_a_run_on_another_host_may_or_may_not_go_on(tmp_path: Path) -> None:
    directory = make(tmp_path, metadata=here(host="elsewhere"))
    assert state(str(directory), HOST) == "started"


@pytest.mark.parametrize("pid", [None, 0, -1, "self", "../self", True, 1 << 70])
def test_a_process_number_that_is_none_is_no_process(tmp_path: Path, pid: object) -> None:
    assert state(str(make(tmp_path, metadata=here(pid=pid, started=HOST.now()))), HOST) == "lost"


@pytest.mark.parametrize("known", [{"status": "preparing", "pid": 0}, {"status": "started", "pid": 0}])
def test_a_run_that_was_ended_before_its_snapshot_was_whole_is_incomplete(
    tmp_path: Path, known: dict[str, object]
) -> None:
    directory = make(tmp_path, metadata=here(**known))
    (directory / "snapshot.json").unlink()
    assert state(str(directory), HOST) == "incomplete"
    (directory / "metadata.json").unlink()
    assert state(str(directory), HOST) == "incomplete"


def test_what_says_nothing_that_is_known_is_unknown(tmp_path: Path) -> None:
    directory = make(tmp_path, metadata={"status": "sleeping"})
    assert state(str(directory), HOST) == "unknown"
    (directory / "metadata.json").write_text("{")
    assert state(str(directory), HOST) == "unknown"


def test_a_run_is_known_by_its_name_or_by_what_it_holds(tmp_path: Path) -> None:
    directory = make(tmp_path)
    assert is_run(str(directory))
    assert is_run(f"{directory}/")
    assert is_run(str(directory.rename(tmp_path / "archive")))
    assert not is_run(str(tmp_path))
    assert not is_run(str(tmp_path / "small_2026_11_21_000000"))


EXPERIMENTS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,20}", fullmatch=True)
STAMPS = st.from_regex(r"[0-9]{4}_[0-9]{2}_[0-9]{2}_[0-9]{6}", fullmatch=True)


@given(EXPERIMENTS, STAMPS, st.integers(min_value=2, max_value=99))
@pytest.mark.full
def test_a_name_is_taken_apart_as_it_was_put_together(exp_name: str, stamp: str, number: int) -> None:
    assert parse_name(f"{exp_name}_{stamp}") == (exp_name, stamp, 1)
    assert parse_name(f"{exp_name}_{stamp}_{number}") == (exp_name, stamp, number)


@given(st.text(max_size=40))
def test_no_other_text_is_a_name(text: str) -> None:
    parsed = parse_name(text)
    assert parsed is None or text.startswith(f"{parsed.exp_name}_{parsed.stamp}")


# Whatever a process can have: any bytes but NUL, as Python shows them, and no `=` in a name.
BYTES = st.binary(max_size=40).map(lambda data: os.fsdecode(data.replace(b"\0", b"")))
NAMES = BYTES.map(lambda text: text.replace("=", "")).filter(bool)
ENVIRONMENTS = st.dictionaries(NAMES, BYTES | st.text("\\nrx\n\r=8f", max_size=20), max_size=8)


@given(ENVIRONMENTS)
@pytest.mark.full
def test_an_environment_comes_back_from_its_dump_as_it_was(environ: dict[str, str]) -> None:
    assert parse_env_dump(dump(environ)) == environ


@given(ENVIRONMENTS)
def test_a_dump_is_a_line_for_each_variable_sorted_in_plain_utf8(environ: dict[str, str]) -> None:
    text = dump(environ)
    text.encode()
    assert "\r" not in text
    assert text.count("\n") == len(environ)
    assert list(parse_env_dump(text)) == sorted(environ)


def test_a_dump_reads_as_one_expects() -> None:
    assert dump({"B": "a\\b", "A": "1\n2", "C": ""}) == "A=1\\n2\nB=a\\\\b\nC=\n"


@given(st.text(max_size=60))
def test_a_dump_that_somebody_edited_is_read_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert isinstance(parse_env_dump(text), dict)
