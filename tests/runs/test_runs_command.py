"""`primus runs`: what was run, how it went, what changed, seen with the real command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run as Primus
from tests.core import test_record as record_fields
from tests.core.run_directories import STARTED, here, make, metrics
from tests.core.test_command import assert_each_action_has_a_verb

from primus_core.errors import RequestError
from primus_core.journal.events import checkpoint_saved
from primus_core.journal.metrics import Metrics, Validation, append
from primus_core.runs.lookup import resolve
from primus_machine.host import HostRoot
from primus_runs import view
from primus_runs.listing import find, last_metrics

HOST = HostRoot()


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """The workspace that the commands look into."""
    return tmp_path / "output"


def listed(primus: Primus, *words: str) -> list[dict[str, Any]]:
    """`primus runs list --json`."""
    done = primus("runs", "list", "--json", *words)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_an_evaluation_is_not_the_last_step_of_a_run(tmp_path: Path) -> None:
    file = str(tmp_path / "metrics.jsonl")
    append(file, Metrics(step=2, steps=4, loss=1.5))
    append(file, Validation(step=2, steps=4, validation_loss=1.75))
    assert last_metrics(str(tmp_path))["loss"] == 1.5


@pytest.mark.full
def test_the_help_of_each_action_begins_with_a_verb(primus: Primus) -> None:
    assert re.search(r"^  runs +List, show and compare runs: ", primus("--help").stdout, re.M)
    assert_each_action_has_a_verb(primus, "runs")


def test_the_help_of_the_list_says_that_status_filters(primus: Primus) -> None:
    assert "filter by status" in " ".join(primus("runs", "list", "--help").stdout.split())


def test_runs_are_listed_newest_first(primus: Primus, output: Path) -> None:
    make(output, "small_2026_11_21_101526_2")
    make(output, "small_2026_11_21_101526_10")
    make(
        output,
        "big_2026_11_22_000000",
        metadata={"status": "failed", "started": STARTED + 1e5, "ended": None, "last_step": None},
    )
    make(output, "small_2025_12_31_235959", metadata={"last_loss": float("nan")})
    (output / "small").symlink_to("small_2026_11_21_101526_10")
    done = primus("runs", "list", env={"TZ": "UTC"})
    head, line, *rows = done.stdout.splitlines()
    assert head.split() == ["run", "status", "task", "model", "backend", "started", "duration", "step", "loss"]
    assert set(line) == {"-", " "}
    assert [" ".join(row.split()) for row in rows] == [
        "big_2026_11_22_000000 failed train llama3.1_8B torchtitan 2026-11-22 18:36 3.2500",
        "small_2026_11_21_101526_10 completed train llama3.1_8B torchtitan 2026-11-21 14:49 1 min 1 s 240 3.2500",
        "small_2026_11_21_101526_2 completed train llama3.1_8B torchtitan 2026-11-21 14:49 1 min 1 s 240 3.2500",
        "small_2025_12_31_235959 completed train llama3.1_8B torchtitan 2026-11-21 14:49 1 min 1 s 240",
    ]


def test_a_run_is_named_by_the_number_of_its_job(primus: Primus, output: Path) -> None:
    make(output, "small_2026_11_20_000000", metadata={"job_id": "4711"})
    again = make(output, "small_2026_11_21_000000", metadata={"job_id": "4711"})
    make(output, "small_2026_11_22_000000", metadata={"job_id": "47110"})
    assert primus("runs", "path", "4711").stdout == f"{again}\n"
    assert primus("runs", "path", "471").returncode == 2


def test_the_list_as_json_has_stable_names(primus: Primus, output: Path) -> None:
    parent = {"run_id": "small_2026_11_20_000000", "directory": "/runs/small_2026_11_20_000000"}
    directory = make(output, metadata={"parent": parent, "last_loss": float("nan")})
    assert listed(primus) == [
        {
            "directory": str(directory),
            "name": "small_2026_11_21_101526",
            "started": STARTED,
            "status": "completed",
            "task": "train",
            "framework": "torchtitan",
            "model": "llama3.1_8B",
            "duration_s": 61.25,
            "last_step": 240,
            "last_loss": None,
            "parent": "small_2026_11_20_000000",
            "continues": "",
            "host": "node1",
            "job_id": "",
            "reason": "",
            "owner": "",
        }
    ]


@pytest.mark.full
def test_the_list_is_filtered_and_cut(primus: Primus, output: Path) -> None:
    make(output, "a_2026_01_01_000000", metadata={"status": "failed"})
    make(output, "b_2026_01_02_000000", metadata={"model": "Mixtral_8x7B"})
    make(output, "c_2026_01_03_000000", metadata={"status": "failed", "model": "mixtral_8x22B"})

    def names(*words: str) -> str:
        return "".join(run["name"][0] for run in listed(primus, *words))

    assert names() == "cba"
    assert names("--status", "failed") == "ca"
    assert names("--model", "MIXTRAL") == "cb"
    assert names("--status", "failed", "-n", "1") == "c"
    assert names("--status", "lost") == ""


def test_a_run_that_goes_on_shows_its_newest_step(primus: Primus, output: Path) -> None:
    directory = make(output, metadata=here(started=time.time() - 30, ended=None, last_step=None, last_loss=None))
    metrics(directory, *(9.0 - n / 1000 for n in range(2000)))
    with (directory / "metrics.jsonl").open("a") as file:
        file.write('{"step": 9999, "lo')  # as one sees a line that is being written
    [run] = listed(primus)
    assert (run["status"], run["last_step"]) == ("running", 2000)
    assert run["last_loss"] == pytest.approx(7.001)
    assert 30 <= run["duration_s"] < 300


def test_a_run_that_was_lost_lasted_until_its_last_step(primus: Primus, output: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    directory = make(output, metadata=here(pid=gone.pid, last_step=None))
    metrics(directory, 9.0, 8.0)
    [run] = listed(primus)
    assert (run["status"], run["last_step"], run["duration_s"]) == ("lost", 2, 20.0)


def test_a_process_that_got_the_number_of_the_runs_later_is_not_the_run(primus: Primus, output: Path) -> None:
    process = subprocess.Popen(["sleep", "600"])
    try:
        own = {"pid": process.pid, "ended": None}
        make(output, "mine_2026_11_21_101526", metadata=here(started=time.time(), **own))
        make(output, "older_2026_11_21_101526", metadata=here(started=time.time() - 3600, **own))
        states = {run["name"].partition("_")[0]: run["status"] for run in listed(primus)}
    finally:
        process.kill()
        process.wait()
    assert states == {"mine": "running", "older": "lost"}


@pytest.mark.parametrize(
    "text", [None, "", "{", "[]", "\udcff", '{"status": []}', '{"status": "failed", "started": "x", "parent": 3}',
             '{"started": 1e999, "ended": NaN, "last_step": true, "last_loss": "x", "task": 7, "status": "completed"}',
             '{"status": {}, "host": [], "command": 7, "first_failure": 3}']
)  # fmt: skip
@pytest.mark.full
def test_metadata_that_is_damaged_breaks_neither_the_list_nor_the_view(
    primus: Primus, output: Path, text: str | None
) -> None:
    directory = make(output)
    make(output, "whole_2026_01_01_000000")
    (directory / "metadata.json").unlink()
    if text is not None:
        (directory / "metadata.json").write_text(text, errors="surrogateescape")
    assert [run["name"] for run in listed(primus)] == [directory.name, "whole_2026_01_01_000000"]
    assert directory.name in primus("runs", "list").stdout
    done = primus("runs", "show", directory.name)
    assert (done.returncode, done.stdout.split()[:2]) == (0, ["run", directory.name]), done.stderr


def test_a_folder_counts_as_a_run_by_its_metadata_too(primus: Primus, output: Path) -> None:
    make(output, "joined", metadata={"started": STARTED + 1e6})
    make(output, "small_2026_11_21_101526")
    (output / "data").mkdir()
    (output / "notes.txt").write_text("")
    assert [run["name"] for run in listed(primus)] == ["joined", "small_2026_11_21_101526"]


def test_a_run_that_was_moved_and_linked_is_still_listed(primus: Primus, output: Path, tmp_path: Path) -> None:
    directory = make(output)
    directory.rename(tmp_path / "big-disk")
    directory.symlink_to(tmp_path / "big-disk")
    assert [run["name"] for run in listed(primus)] == [directory.name]


def test_a_name_cannot_write_to_the_terminal(primus: Primus, output: Path) -> None:
    make(output, "evil\x1b[2J\n")
    assert "evil\\x1b[2J\\n" in primus("runs", "list").stdout


def test_an_empty_workspace_is_no_error(primus: Primus, output: Path) -> None:
    assert primus("runs", "list").stdout == "no runs in ./output; another folder: --workspace DIR\n"
    make(output)
    assert primus("runs", "list", "--status", "failed").stdout == "no such runs in ./output\n"
    assert listed(primus, "--status", "failed") == []


@pytest.mark.full
def test_a_workspace_may_be_given_in_two_ways(primus: Primus, tmp_path: Path) -> None:
    directory = make(tmp_path / "elsewhere")
    for words in (["elsewhere"], ["--workspace", str(tmp_path / "elsewhere")]):
        assert [run["directory"] for run in listed(primus, *words)] == [str(directory)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "ACTION"),
        (["lst"], "did you mean 'list'?"),
        (["list", "nowhere"], "there is no folder 'nowhere'"),
        (["list", "--status", "complete"], "did you mean 'completed'?"),
        (["list", "-n", "0"], "'0' is not a number from 1 up"),
        (["list", "--jsn"], "did you mean '--json'?"),
        (["show", "smal"], "did you mean 'small'?"),
        (["show", "small_2026_11_21_101527"], "did you mean 'small_2026_11_21_101526'?"),
        (["show", "output/small_2026_11_21_101527"], "did you mean 'small_2026_11_21_101526'?"),
        (["show", ""], "there is no run ''"),
        (["path", "latest", "--workspace", "nowhere"], "no runs in nowhere"),
        (["diff", "small", "completely different"], "`primus runs list` lists the runs"),
        (["path", "."], "there is no run '.'"),
    ],
)
def test_what_is_not_there_is_a_wrong_request(primus: Primus, output: Path, words: list[str], message: str) -> None:
    make(output)
    done = primus("runs", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


@pytest.mark.full
def test_a_run_is_found_by_path_by_name_by_experiment_and_as_the_latest(
    primus: Primus, output: Path, tmp_path: Path
) -> None:
    old, new = make(output, "a_2026_01_01_000000"), make(output, "b_2026_01_02_000000")
    middle = make(output, "a_2026_01_01_000000_2")
    (output / "b").symlink_to(new.name)
    for words, expected in (
        ([old.name], old),
        ([f"output/{old.name}/"], old),
        ([str(middle)], middle),
        (["a"], middle),  # without a link
        (["b"], new),
        (["output/b"], new),
        (["latest"], new),
        (["latest", "--workspace", str(output)], new),
    ):
        assert primus("runs", "path", *words).stdout == f"{expected}\n", words
    assert primus("runs", "path", old.name, cwd=output).stdout == f"{old}\n"
    assert primus("runs", "path", ".", cwd=output).returncode == 2
    assert primus("runs", "path", "./", cwd=new).stdout == f"{new}\n"


def test_a_path_with_any_bytes_is_printed_as_it_is(tmp_path: Path, primus: Primus) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff \xc3\xa9"))
    directory = make(folder)
    done = subprocess.run(
        ["bash", "-c", 'cd "$(primus runs path latest --workspace "$1")" && pwd -P', "bash", folder],
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        check=True,
    )
    assert done.stdout == os.fsencode(directory) + b"\n"


def test_a_run_is_shown_with_what_one_asks_first(primus: Primus, output: Path) -> None:
    failure = {"rank": 3, "what": "ValueError: no"}
    directory = make(
        output,
        metadata={
            "status": "failed",
            "exit_code": 1,
            "first_failure": failure,
            "parent": {"run_id": "p", "directory": "/p"},
        },
        code={"dirty": True},
    )
    metrics(directory, 9.0, 8.0)
    done = primus("runs", "show", "small", env={"TZ": "UTC"})
    assert (
        done.stdout
        == f"""\
run        small_2026_11_21_101526
status     failed, exit code 1
failure    rank 3: ValueError: no
directory  {directory}
command    primus direct -- train pretrain --config small.yaml
started    2026-11-21 14:49:30 by ada on node1
ended      2026-11-21 14:50:31
duration   1 min 1 s
in         /home/ada/project
replay of  p
task       train, torchtitan, llama3.1_8B, primus 0.1.0
GPU        MI300X
ranks      8 on one node
code       0123456789ab on main, with uncommitted changes (code/diff.patch), in /home/ada/project
metrics    step 2 of 2, loss 8.0000, 1,010 tokens/s in that step
snapshot   complete

environment that Primus set
  OMP_NUM_THREADS=2  (torchtitan: 2 CPUs)

config
  {directory}/config/backend_config.json
  {directory}/config/primus_config.yaml

metrics and logs
  {directory}/metrics.jsonl
"""
    )


def test_a_run_that_can_be_continued_is_shown_with_the_command_that_does_it(primus: Primus, output: Path) -> None:
    directory = make(output, metadata={"status": "interrupted", "exit_code": 143, "reason": "no checkpoint of step 9"})
    (output / "small").symlink_to(directory.name)
    (directory / "logs").mkdir(exist_ok=True)
    checkpoint_saved(str(directory), step=7, path=str(directory / "checkpoints/step-7"))
    said = primus("runs", "show", "small").stdout
    assert "status     interrupted, no checkpoint of step 9, exit code 143\n" in said
    assert "next       primus direct -- train pretrain --config small.yaml    # continues from step 7\n" in said
    (output / "small").unlink()
    (output / "small").symlink_to("small_2027_01_01_000000")
    assert "next  " not in primus("runs", "show", directory.name).stdout, "another run is the one to continue"


@pytest.mark.parametrize(("is_secret", "told"), [(False, "GPUS_PER_NODE=2 X='a b' primus"), (True, "primus")])
def test_the_command_of_a_run_has_the_persons_own_variables(
    is_secret: bool, told: str, primus: Primus, output: Path
) -> None:
    variables: list[dict[str, Any]] = [
        {"name": "GPUS_PER_NODE", "value": "2", "origin": "user"},
        {"name": "X", "value": "a b", "origin": "user", "secret": is_secret},
        {"name": "OMP_NUM_THREADS", "value": "2", "origin": "torchtitan"},
    ]
    make(output, plan={"environment": variables})
    said = primus("runs", "show", "small").stdout
    assert f"command    {told} direct -- train pretrain --config small.yaml\n" in said


def test_a_view_as_json_has_each_field_of_the_record(primus: Primus, output: Path) -> None:
    directory = make(output)
    known = {name: value for name, value in record_fields.FULL.to_dict().items() if name not in ("run_id", "status")}
    (directory / "metadata.json").write_text(json.dumps({**known, "status": "completed", "future": 1}))
    data = json.loads(primus("runs", "show", "small", "--json").stdout)
    assert {*known, "status", "future"} <= data.keys()
    shown_otherwise = {"parent", "started_by", "continues", "reason"}  # the run's name; why its job waits
    assert {name: data[name] for name in known.keys() - shown_otherwise} == {
        name: known[name] for name in known.keys() - shown_otherwise
    }


def test_a_view_as_json_has_the_same(primus: Primus, output: Path) -> None:
    directory = make(output)
    data = json.loads(primus("runs", "show", "small", "--json").stdout)
    assert data["directory"] == str(directory)
    assert data["snapshot"] == {"whole": True, "problem": "", "why": ""}
    assert [v["name"] for v in data["environment"]] == ["OMP_NUM_THREADS"]
    first = [
        *("run_id", "directory", "status", "reason", "exit_code", "job_id", "cluster", "scheduler"),
        *("command", "task", "runtime", "framework", "model"),
        *("primus_version", "host", "user", "cwd", "started", "ended", "duration_s", "owner", "parent"),
        *("started_by", "continues", "notes", "next", "gpu_model", "nnodes"),
        *("gpus_per_node", "world_size", "one_per_node", "code", "files_changed", "plan_differs"),
        *("environment", "configs", "checkpoints", "wandb", "verified", "logs", "metrics", "first_failure"),
        *("attempts", "snapshot"),
    ]
    assert list(data)[: len(first)] == first, "the rest of the record follows"


def test_a_view_says_what_is_wrong_with_a_snapshot(primus: Primus, output: Path) -> None:
    directory = make(output)
    (directory / "env/packages.txt").unlink()
    done = primus("runs", "show", "small")
    assert done.returncode == 0
    assert "snapshot   small_2026_11_21_101526: env/packages.txt is missing; it was removed" in done.stdout


def test_the_snapshot_of_a_run_that_starts_is_being_written(primus: Primus, output: Path) -> None:
    directory = make(output, metadata=here(started=time.time() - 30, ended=None, status="preparing"))
    (directory / "snapshot.json").unlink()
    assert "snapshot   it is being written\n" in primus("runs", "show", "small").stdout


def test_a_failure_with_its_fix_is_shown_line_by_line(primus: Primus, output: Path) -> None:
    what = "TrainingError: the loss is nan at steps 5, 6, 7\n  why: training diverged\n  fix: \x1b[2J"
    make(output, metadata={"status": "failed", "first_failure": {"rank": 1, "what": what}})
    said = primus("runs", "show", "small").stdout
    assert "failure    rank 1: TrainingError: the loss is nan at steps 5, 6, 7\n" in said
    assert f"{'':<10}   why: training diverged\n" in said
    assert "\x1b" not in said, "what moves the cursor stays escaped"


@pytest.mark.full
def test_no_secret_is_shown(primus: Primus, output: Path) -> None:
    secret = "hf_" + "a" * 30
    command = ["primus", "direct", "--env", f"HF_TOKEN={secret}", "--", "x", "--api-key", "hunter22", "named-elsewhere"]
    directory = make(
        output,
        metadata={"command": command, "model": secret},
        plan={"environment": [{"name": "URL", "value": "https://u:sesame@x", "origin": "y"}]},
        environ={"WHERE": "https://u:sesame@y"},
    )
    make(output, "other_2026_11_21_101526")
    for words in (["list"], ["show", "small"], ["diff", "small", "other"]):
        for end in ([], ["--json"]):
            done = primus("runs", *words, *end, env={"MY_SECRET": "named-elsewhere"})
            assert done.returncode == 0, done.stderr
            for hidden in (secret, "hunter22", "sesame", "named-elsewhere"):
                assert hidden not in done.stdout, (words, directory)


def test_what_changed_is_a_table_and_the_results_stand_apart(primus: Primus, output: Path) -> None:
    a = make(output, "a_2026_01_01_000000", backend={"lr": 0.004})
    b = make(output, "b_2026_01_02_000000", backend={"lr": 0.008}, environ={"X": "1"}, packages={"torch": "2.10.0"},
             metadata={"status": "failed", "ended": STARTED + 5})  # fmt: skip
    metrics(a, 9.0, 8.0, 7.0)
    metrics(b, 9.0, 8.4)
    done = primus("runs", "diff", "a", "b")
    assert done.returncode == 0, done.stderr
    assert [line.split() for line in done.stdout.splitlines() if not line.startswith("--")] == [
        ["category", "what", "a_2026_01_01_000000", "b_2026_01_02_000000"],
        ["config", "lr", "0.004", "0.008"],
        ["environment", "X", "1"],
        ["packages", "torch", "2.9.0", "2.10.0"],
        [],
        ["result", "a_2026_01_01_000000", "b_2026_01_02_000000"],
        ["status", "completed", "failed"],
        ["duration", "1", "min", "1", "s", "5.0", "s"],
        ["last", "step", "3", "2"],
        ["last", "loss", "7.0000", "8.4000"],
        ["median", "tokens/s", "1,010", "1,005"],
        [],
        ["loss", "at", "step", "a_2026_01_01_000000", "b_2026_01_02_000000", "difference", "relative"],
        ["1", "9.0000", "9.0000", "+0.0000", "+0.0%"],
        ["2", "8.0000", "8.4000", "+0.4000", "+5.0%"],
    ]
    data = json.loads(primus("runs", "diff", "a", "b", "--json").stdout)
    assert data["differences"][0] == {"category": "config", "name": "lr", "before": "0.004", "after": "0.008"}
    assert len(data["differences"]) == 3
    assert data["results"]["b"] == {
        "run": b.name,
        "directory": str(b),
        "status": "failed",
        "duration_s": 5.0,
        "last_step": 2,
        "last_loss": 8.4,
        "tokens_per_second": 1005.0,
        "continues": "",
    }
    first = {"step": 1, "a": 9.0, "b": 9.0, "difference": 0.0, "relative": 0.0}
    assert (data["curves"][0], len(data["curves"])) == (first, 2)


def test_two_runs_without_a_common_step_say_which_earlier_one_has_some(primus: Primus, output: Path) -> None:
    a = make(output, "a_2026_01_01_000000", metadata={"continues": {"run_id": "first", "directory": "/x/first"}})
    b = make(output, "b_2026_01_02_000000")
    (a / "metrics.jsonl").write_text('{"step": 31, "loss": 5.0, "time": 1}\n')
    metrics(b, 9.0, 8.4)
    said = primus("runs", "diff", "a", "b").stdout
    assert "no step has a loss in both runs: there is nothing to compare\n" in said
    assert said.endswith(f"{a.name} continues another: primus runs diff first {b.name}\n")


def test_runs_of_two_frameworks_are_compared_by_what_both_have_words_for(primus: Primus, output: Path) -> None:
    for name, framework, lr in (("a", "torchtitan", 0.1), ("b", "megatron", 0.2)):
        said = {"parameters": 1311872, "lr": lr, "decay": "cosine", "seed": None}
        backend = {"hyperparameters": said, "settings": {f"{framework}.{n}": n for n in range(100)}}
        make(output, f"{name}_2026_01_01_000000", backend=backend, plan={"framework": framework})
    lines = primus("runs", "diff", "a", "b").stdout.splitlines()
    assert [line.split()[:4] for line in lines[2:4]] == [
        ["config", "framework", "torchtitan", "megatron"],
        ["config", "lr", "0.1", "0.2"],
    ]
    assert "equal in both: parameters 1311872, decay cosine" in lines
    assert len(lines) < 20
    data = json.loads(primus("runs", "diff", "a", "b", "--json").stdout)
    assert data["one_framework"] is False
    assert data["agreed"] == {"parameters": 1311872, "decay": "cosine"}
    assert [row["name"] for row in data["differences"]] == ["framework", "lr"]


def test_a_run_that_says_no_hyperparameters_is_named_so(primus: Primus, output: Path) -> None:
    for name in ("torchtitan", "megatron"):
        make(output, f"{name}_2026_01_01_000000", plan={"framework": name})
    said = primus("runs", "diff", "torchtitan", "megatron").stdout
    assert "equal in both: nothing (not both runs have hyperparameters" in said


def test_a_run_without_metrics_has_its_last_step_from_its_record(primus: Primus, output: Path) -> None:
    for name in ("a_2026_01_01_000000", "b_2026_01_02_000000"):
        make(output, name)
    data = json.loads(primus("runs", "diff", "a", "b", "--json").stdout)
    last = {"last_step": 240, "last_loss": 3.25, "tokens_per_second": None}
    assert data["results"]["b"].items() >= last.items()
    assert data["curves"] == []


def test_two_runs_without_a_difference_say_so(primus: Primus, output: Path) -> None:
    for name in ("a_2026_01_01_000000", "b_2026_01_02_000000"):
        make(output, name)
    assert primus("runs", "diff", "a", "b").stdout.startswith("the recorded inputs of the two runs are equal\n\nresult")


def test_a_damaged_run_is_not_compared(primus: Primus, output: Path) -> None:
    a = make(output, "a_2026_01_01_000000")
    make(output, "b_2026_01_02_000000")
    (a / "plan.json").write_text("{}")
    done = primus("runs", "diff", "a", "b")
    assert done.returncode == 3
    assert "a_2026_01_01_000000: plan.json is damaged" in done.stderr


def test_only_runs_that_are_asked_for_are_read(output: Path) -> None:
    make(output, "a_2026_01_02_000000")
    broken = output / "a_2026_01_01_000000"
    broken.mkdir()
    runs = find(str(output), HOST)
    assert next(runs).name == "a_2026_01_02_000000"
    (broken / "metadata.json").write_text('{"status": "failed"}')  # after the first was given
    assert next(runs).status == "failed"


def test_a_workspace_that_cannot_be_read_has_no_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert list(find(str(tmp_path / "file"), HOST)) == []
    with pytest.raises(RequestError, match="no runs in"):
        resolve("latest", str(tmp_path / "file"), HOST)


def test_a_link_that_leads_nowhere_is_no_run(output: Path) -> None:
    make(output)
    (output / "gone").symlink_to("gone_2026_01_01_000000")
    (output / "gone_2026_01_01_000000").symlink_to("nowhere")
    assert [run.name for run in find(str(output), HOST)] == ["small_2026_11_21_101526"]
    with pytest.raises(RequestError, match="there is no run 'gone'"):
        resolve("gone", str(output), HOST)


@pytest.mark.parametrize("rows", [[], [("a", "b")], [("a", "a longer cell"), ("ccc", "")], [("", "")]])
def test_a_long_list_looks_as_other_tables_do(rows: list[tuple[str, str]]) -> None:
    headers = ("run", "status")
    assert view.aligned([headers, *rows]) == view.table(rows, headers)
