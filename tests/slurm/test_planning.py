"""The runtime `slurm`, as far as it plans: what srun and sbatch would get. No Slurm is needed for it."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import rank_report
from tests.conftest import Run

from primus_core.journal.record import RunRecord
from primus_slurm.flags import Options, warned_at_once
from primus_slurm.follow import exit_code
from primus_slurm.queries import ask, fields, forgotten, job
from primus_slurm.scheduler import SLURM
from primus_slurm.stop import command as stop_command

NASTY = ["a b", "it's", '"double"', "$(touch x)", "`touch x`", "*", "a;b|c&d", "\\", "é", "-N9", "--nodes=9", "#x"]
ENV = "/usr/bin/env"
GOLDEN = Path(__file__).parent / "golden" / "sbatch.txt"


def plan_of(primus: Run, folder: Path, *words: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    """The plan of `primus slurm <words>`, as JSON."""
    result = primus("slurm", "--dry-run", "--json", *words, cwd=folder, env=env)
    assert result.returncode == 0, result.stderr
    return dict(json.loads(result.stdout))


def flags(plan: dict[str, Any]) -> list[str]:
    """The words between the command and what it runs."""
    words = plan["steps"][-1]["argv"]
    return list(words[1 : words.index(ENV)] if words[0] == "srun" else words[1:-1])


@pytest.fixture
def site(project: Path) -> Path:
    """A project whose config has defaults for Slurm."""
    with (project / "primus.yaml").open("a", encoding="utf-8") as file:
        file.write("slurm: {nodes: 2, partition: gpu, exclusive: true, wait: 30}\n")
    return project


def test_the_help_says_in_the_words_of_the_field_what_an_option_does(primus: Run) -> None:
    told = " ".join(primus("slurm", "--help").stdout.split())
    assert "give up after N consecutive restarts without progress (default: 0)" in told


def test_srun_starts_one_primus_on_each_node(primus: Run, project: Path) -> None:
    inner = ("direct", "--single", "--", "analyze", "topology", "a b")
    plan = plan_of(primus, project, "-N2", "-p", "gpu", "--", *inner)
    argv = plan["steps"][-1]["argv"]
    assert argv[:6] == [
        "srun",
        "--job-name=primus-analyze-topology",
        "--ntasks-per-node=1",
        "--kill-on-bad-exit=1",
        "-N2",
        "-p",
    ]
    behind = argv[argv.index(ENV) + 1 :]
    joined = {word.partition("=")[0]: word.partition("=")[2] for word in behind if word.startswith("PRIMUS_")}
    assert joined["PRIMUS_RUN_DIR"] == plan["place"]["directory"]
    assert joined["PRIMUS_RUN_ID"] == plan["place"]["run_id"]
    assert joined["PRIMUS_OUTER"] == "slurm"
    assert behind[len(joined) :] == [sys.executable, "-m", "primus_core", *inner]
    assert "time" not in " ".join(flags(plan)), "nobody asked for a time limit"


@pytest.mark.parametrize("inner", [(), ("direct", "--"), ("container", "--image", "IMG", "--")], ids=lambda w: w[:1])
@pytest.mark.parametrize("command", ["srun", "sbatch"])
def test_how_long_nodes_wait_for_each_other_reaches_the_layer_that_starts_the_ranks(
    primus: Run, project: Path, command: str, inner: tuple[str, ...]
) -> None:
    words = ("--rendezvous-timeout", "1m30s", command, "-N", "2", "--", *inner, "analyze", "topology")
    plan = plan_of(primus, project, *words)
    argv = plan["inner_plans"][-2]["inner"] if inner[:1] == ("container",) else plan["inner"]
    assert list(argv[-6:]) == ["direct", "--rendezvous-timeout", "90", "--", "analyze", "topology"], argv
    assert "rendezvous" not in " ".join(flags(plan)), "it is no flag of Slurm's"
    script = "".join(file["text"] for file in plan["files"] if file["path"] == "submit.sh")
    assert ("direct --rendezvous-timeout 90 -- analyze" in script) == (command == "sbatch")


def test_a_rendezvous_timeout_of_the_layer_inside_wins_and_one_that_is_none_is_refused(
    primus: Run, tmp_path: Path
) -> None:
    env = {"PYTHONPATH": rank_report.write(tmp_path / "packages")}
    words = ("slurm", "--dry-run", "-N2", "--rendezvous-timeout=30s", "--", "direct")
    assert "--timeout 30\n" in primus(*words, "--", "rank_report", env=env).stdout
    assert "--timeout 60\n" in primus(*words, "--rendezvous-timeout", "60s", "--", "rank_report", env=env).stdout
    wrong = primus("slurm", "--rendezvous-timeout", "soon", "srun", "-N2", "--", "rank_report", env=env)
    assert wrong.returncode == 2
    assert "'soon' is not a duration" in wrong.stderr


def test_each_hop_of_a_container_on_slurm_is_shown(primus: Run, project: Path) -> None:
    plan = plan_of(primus, project, "-N2", "--", "container", "--image", "IMG", "--", "analyze", "topology")
    assert [hop["runtime"] for hop in (plan, *plan["inner_plans"])] == ["slurm", "container", "direct"]
    assert len({hop["place"]["directory"] for hop in (plan, *plan["inner_plans"])}) == 1
    text = primus("slurm", "--dry-run", "--", "container", "--image", "IMG", "--", "analyze", "topology", cwd=project)
    assert "inside slurm" in text.stdout
    assert "inside container" in text.stdout


@pytest.mark.parametrize("word", NASTY)
@pytest.mark.parametrize("command", ["srun", "sbatch"])
def test_every_word_arrives_as_it_was_typed(primus: Run, project: Path, command: str, word: str) -> None:
    typed = ["--comment", word, f"--reservation={word}", "-J", word, "-N", "3"]
    plan = plan_of(primus, project, command, *typed, "--", "direct", "--single", "--", "analyze", "topology", word)
    assert flags(plan)[-len(typed) :] == typed
    if command == "srun":
        assert plan["steps"][-1]["argv"][-1] == word
    else:
        line = plan["files"][0]["text"].splitlines()[-1]
        assert shlex.split(line)[-1] == word
    assert not (project / "x").exists()


def test_the_job_script_run_by_bash_gives_primus_the_same_words(primus: Run, project: Path, tmp_path: Path) -> None:
    words = ["direct", "--single", "--", "analyze", "topology", *NASTY]
    script = plan_of(primus, project, "sbatch", "--", *words)["files"][0]["text"]
    fake = tmp_path / "python"
    fake.write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; done\n')
    fake.chmod(0o755)
    script = script.replace(f"exec {shlex.quote(sys.executable)} ", f"exec {fake} ")
    said = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["-m", "primus_core", "slurm", "srun", "--", *words]
    assert not (project / "x").exists()


SPELLINGS = {
    "nodes": ["-N4", "-N|4", "--nodes=4", "--nodes|4", "-vN4", "-HN|4"],
    "partition": ["-pbig", "-p|big", "--partition=big", "--partition|big", "--part=big", "-Qp|big"],
    "exclusive": ["--exclusive", "--exclusive=user", "--oversubscribe", "-s"],
}
DEFAULTS = {"nodes": "--nodes=2", "partition": "--partition=gpu", "exclusive": "--exclusive"}


@pytest.mark.full
@given(chosen=st.permutations(sorted(SPELLINGS)).flatmap(
    lambda names: st.tuples(*(st.tuples(st.just(name), st.none() | st.sampled_from(SPELLINGS[name])) for name in names))
))  # fmt: skip
@pytest.mark.parametrize("command", ["srun", "sbatch"])
def test_a_default_gives_way_to_any_spelling_of_its_flag(
    command: str, chosen: tuple[tuple[str, str | None], ...]
) -> None:
    words = [word for _, spelling in chosen if spelling for word in spelling.split("|")]
    options = Options(command)
    read = options.read(words, {})
    assert list(read.passed) == words
    kept = options.not_given(DEFAULTS.values(), read.given)
    assert set(kept) == {DEFAULTS[name] for name, spelling in chosen if not spelling}


OPTIONS = st.sampled_from(
    [
        *(["-N4"], ["-J", "x"], ["-J", "--nodes=9"], ["--comment", "-N9"], ["-vv"], ["-Hp", "big"], ["--mem=4G"]),
        *(["--site-own"], ["--site-own=3"], ["-e", "log"], ["-K"], ["--kill-on-bad-exit"], ["-K1"], ["--comment="]),
    ]
)


@given(options=st.lists(OPTIONS, max_size=8))
@pytest.mark.full
def test_flags_pass_once_and_in_order_and_values_are_no_flags(options: list[list[str]]) -> None:
    words = [word for option in options for word in option]
    read = Options("srun").read(words, {"--dry-run": False})
    assert list(read.passed) == words
    assert read.own == ()
    assert read.given.get("nodes", "4") == "4"
    assert ("nodes" in read.given) == (["-N4"] in options)


@pytest.mark.full
def test_the_system_configs_defaults_are_used_once_and_those_of_the_command(primus: Run, site: Path) -> None:
    words = ("--", "direct", "--single", "--", "analyze", "topology")
    assert set(flags(plan_of(primus, site, *words))) >= {"--nodes=2", "--partition=gpu", "--exclusive", "--wait=30"}
    given_nodes = flags(plan_of(primus, site, "-N4", *words))
    assert "-N4" in given_nodes
    assert "--nodes=2" not in given_nodes
    submitted = flags(plan_of(primus, site, "sbatch", *words))
    assert {"--nodes=2", "--partition=gpu", "--exclusive"} <= set(submitted)
    assert "--kill-on-bad-exit=1" not in submitted, "sbatch has no such option"


def test_a_variable_of_slurm_is_the_persons_word_too(primus: Run, site: Path) -> None:
    found = flags(
        plan_of(
            primus,
            site,
            "sbatch",
            "--",
            "analyze",
            "topology",
            env={"SBATCH_PARTITION": "mine", "SBATCH_JOB_NAME": "me"},
        )
    )
    assert not [word for word in found if word.startswith(("--partition", "--job-name"))]


JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "3", "SLURM_NTASKS": "24", "SLURM_CPUS_PER_TASK": "6",
       "SLURM_NODEID": "0", "SLURM_LOCALID": "0", "SLURM_JOB_NODELIST": "n[1-3]"}  # fmt: skip


def test_in_a_job_srun_takes_the_whole_allocation_one_task_a_node(primus: Run, site: Path) -> None:
    found = flags(plan_of(primus, site, "--", "analyze", "topology", env=JOB))
    assert found[:4] == ["--nodes=3", "--ntasks=3", "--ntasks-per-node=1", "--cpus-per-task=6"]
    assert "--partition=gpu" not in found, "the allocation has been made"


@pytest.mark.full
def test_nodes_and_gpus_come_from_the_flags(primus: Run, project: Path) -> None:
    def inner(*words: str) -> dict[str, Any]:
        return dict(plan_of(primus, project, *words, "--", "ranks")["inner_plans"][0]["distributed"])

    found = inner("-N", "4", "--gres=gpu:mi300x:8")
    assert (found["nnodes"], found["gpus_per_node"], found["tentative"]) == (4, 8, False)
    assert inner("--nodelist=n[01-03]", "--gpus-per-node=2")["master_addr"] == "n01"
    assert inner("--nodelist=n[01-03]", "--gpus-per-node=2")["nnodes"] == 3
    assert inner("-N2")["tentative"], "nobody said how many GPUs a node has"
    assert inner("-N2-4", "--gpus-per-node=8")["tentative"], "Slurm chooses between 2 and 4"


def test_a_log_file_gets_its_folder_and_keeps_its_pattern(primus: Run, project: Path) -> None:
    plan = plan_of(
        primus, project, "sbatch", "-o", "logs/deep er/train_%j.log", "-e", "err/%x/%j", "--", "analyze", "topology"
    )
    assert plan["steps"][0]["argv"] == ["mkdir", "-p", "--", "logs/deep er", "err/primus-analyze-topology"]
    assert not [word for word in flags(plan) if word.startswith("--output=")]


def test_without_a_log_file_the_log_is_in_the_run_directory(primus: Run, project: Path) -> None:
    plan = plan_of(primus, project, "sbatch", "--", "analyze", "topology")
    assert f"--output={plan['place']['directory']}/logs/slurm_%j.log" in flags(plan)
    assert "--job-name=primus-analyze-topology" in flags(plan)


@pytest.mark.parametrize("words", [("-N", "two"), ("--nodes=2.5",), ("-N", "2 nodes")])
def test_a_number_of_nodes_that_is_none_is_refused(primus: Run, project: Path, words: tuple[str, ...]) -> None:
    done = primus("slurm", "srun", "--dry-run", *words, "--", "behave", "exit", "0", cwd=project)
    assert done.returncode == 2
    assert f"{words[-1].rpartition('=')[2]}: not a number of nodes" in done.stderr


def test_a_dry_run_for_4096_nodes_is_quick_and_its_script_no_longer(primus: Run, project: Path) -> None:
    def script(nodes: str) -> str:
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        result = primus("slurm", "sbatch", "--dry-run", "-N", nodes, "--", "analyze", "topology", cwd=project)
        assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 10
        assert result.returncode == 0, result.stderr
        return result.stdout.split("<<'PRIMUS_END_OF_FILE'\n")[1].split("PRIMUS_END_OF_FILE")[0]

    def constant(text: str) -> str:
        return re.sub(r"_\d{4}_\d\d_\d\d_\d{6}", "", text)

    assert constant(script("4096")) == constant(script("2"))


def test_the_dry_run_of_sbatch_is_as_recorded(primus: Run, project: Path) -> None:
    words = ("-N", "4096", "-p", "gpu", "-t", "1:00:00", "-o", "logs/train_%j.log")
    own = {"XDG_CONFIG_HOME": str(project / "config")}  # the folders that a person trusts are named in the job, too
    shown = primus("slurm", "--dry-run", "sbatch", *words, "--", "analyze", "topology", "a b", cwd=project, env=own)
    outer = shown.stdout.partition("# --- inside")[0]
    for found, stands in (
        (str(project), "PROJECT"), (sys.executable, "PYTHON"), (os.path.expanduser("~"), "HOME"),
    ):  # fmt: skip
        outer = outer.replace(found, stands)
    outer = re.sub(r"_\d{4}_\d\d_\d\d_\d{6}", "_TIME", outer)
    outer = re.sub(r"\b[0-9a-f]{64}\b", "SHA256", outer)
    assert outer == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.full
def test_secrets_are_neither_in_the_script_nor_on_the_command_line(primus: Run, project: Path) -> None:
    token = {"HF_TOKEN": "hf_abcdefghijklmnopqrstuvwxyz"}
    for command in ("srun", "sbatch"):
        words = ("direct", "--single", "--env", "WANDB_API_KEY=0123456789abcdef0123", "--", "analyze", "topology")
        result = primus("slurm", "--dry-run", command, "--", *words, cwd=project, env=token)
        assert result.returncode == 0, result.stderr
        assert "hf_abc" not in result.stdout
        assert "0123456789abcdef" not in result.stdout


def test_a_secret_among_slurms_flags_is_refused(primus: Run, project: Path) -> None:
    with (project / "primus.yaml").open("a", encoding="utf-8") as file:
        file.write("slurm: {api-key: abcdefgh}\n")
    for flags in ((), ("--hf-token=abcdefgh",)):
        result = primus("slurm", "--dry-run", *flags, "--", "analyze", "topology", cwd=project)
        assert result.returncode == 2
        assert "contains a secret" in result.stderr
        assert "abcdefgh" not in result.stdout + result.stderr


def test_without_slurm_a_run_is_refused_and_nothing_is_made(primus: Run, project: Path, tmp_path: Path) -> None:
    bare = {"PATH": str(tmp_path / "nothing")}
    for command in ("srun", "sbatch"):
        result = primus("slurm", command, "-N2", "--", "analyze", "topology", cwd=project, env=bare)
        assert result.returncode == 3
        assert f"command '{command}' not found" in result.stderr
        assert "primus direct" in result.stderr
    assert not (project / "output").exists()
    assert primus("slurm", "--dry-run", "--", "analyze", "topology", cwd=project, env=bare).returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["srnu", "-N2"], "did you mean 'srun'"),
        (["-N2", "sbatch"], "primus slurm sbatch -N2 -- analyze topology"),
        (["-N2", "-J"], "-J needs a value"),
        (["sbatch", "--array=1-4"], "--array is not supported"),
        (["--test-only", "sbatch", "-N2"], "--test-only is not supported"),
        (["srun", "-N2", "--ntasks-per-node=2"], "--ntasks-per-node=2 is not supported"),
        (["srun", "-N2", "-n4"], "--ntasks=4 is not supported"),
        (["srun", "-n2"], "--ntasks=2 is not supported"),
        (["srun", "-ntasks=2"], "--ntasks=2 is not supported"),
        (["srun", "-ntasks-per-node=1"], "primus slurm srun --ntasks-per-node=1 -- analyze topology"),
        (["srun", "-N2", "--ntasks-per-gpu=1"], "--ntasks-per-gpu=1 is not supported"),
        (["sbatch", "--wrap", "x"], "--wrap is not supported"),
        (["srun", "-N2", "--version"], "--version is not supported"),
        (["sbatch", "-V"], "--version is not supported"),
        (["sbatch", "--test-only"], "--test-only is not supported"),
        (["srun", "--usa"], "--usage is not supported"),
        (["sbatch", "-o", "b\\s/%j.log"], "interprets a backslash"),
        (["sbatch", "-o", "logs/%4j/a.log"], "%4j is not known before the job is submitted"),
        (["-N1", ":", "-N2"], "':' is not understood"),
    ],
)
def test_what_cannot_be_meant_is_refused(primus: Run, project: Path, words: list[str], said: str) -> None:
    result = primus("slurm", *words, "--", "analyze", "topology", cwd=project)
    assert result.returncode == 2, result.stderr
    assert said in result.stderr


@pytest.mark.parametrize(
    ("environ", "words", "said"),
    [
        ({"NNODES": "2"}, ["srun"], "NNODES is '2', but 1 node of the job will run ranks"),
        ({"NNODES": "0"}, ["srun"], "fix: unset NNODES\n"),
        ({"NNODES": "2"}, ["sbatch", "-N", "4"], "NNODES is '2', but 4 nodes of the job will run ranks"),
        ({"SLURM_NTASKS": "8"}, ["srun", "-N2"], "SLURM_NTASKS is set, to '8', and is not supported"),
        ({"SLURM_NPROCS": "4"}, ["srun", "-N2"], "SLURM_NPROCS is set, to '4', and is not supported"),
        ({"SLURM_NTASKS_PER_GPU": "1"}, ["srun"], "SLURM_NTASKS_PER_GPU is set, to '1', and is not supported"),
        ({"SBATCH_ARRAY_INX": "1-4"}, ["sbatch"], "SBATCH_ARRAY_INX is set, to '1-4', and is not supported"),
    ],
)
def test_a_variable_that_contradicts_the_job_is_refused(
    primus: Run, project: Path, environ: dict[str, str], words: list[str], said: str
) -> None:
    result = primus("slurm", *words, "--", "analyze", "topology", cwd=project, env=environ)
    assert result.returncode == 2, result.stderr
    assert said in result.stderr
    assert "fix: unset" in result.stderr


@pytest.mark.full
def test_one_task_on_each_node_and_as_many_nodes_as_the_variable_says_are_no_contradiction(
    primus: Run, project: Path
) -> None:
    task = ("--", "analyze", "topology")
    plan = plan_of(primus, project, "srun", "-N2", "-n2", "--ntasks-per-node=1", *task, env={"NNODES": "2"})
    plan_of(primus, project, "srun", "-N2", *task, env={"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "4"})
    assert plan["distributed"]["nnodes"] == 2
    plan_of(primus, project, "sbatch", "-N2", "--ntasks-per-node=8", *task)


def test_in_a_step_with_several_tasks_no_further_step_is_started(primus: Run, project: Path) -> None:
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}
    refused = primus("slurm", "--dry-run", "srun", "-N2", "--", "analyze", "topology", cwd=project, env=step)
    assert (refused.returncode, "each of them would start the run" in refused.stderr) == (2, True), refused.stderr


def test_srun_follows_without_being_told(primus: Run, project: Path) -> None:
    """So that `follow: true` in primus.yaml, which is for sbatch, spoils no srun, nor the one in the job."""
    task = ("--", "analyze", "topology")
    told, plain = (plan_of(primus, project, "srun", "-N2", *words, *task) for words in (["--follow"], []))
    assert [step["name"] for step in told["steps"]] == [step["name"] for step in plain["steps"]]


SCONTROL = """\
JobId=7 JobName={name}
   UserId=me(1) GroupId=me(1) MCS_label=N/A
   Priority=0 Nice=0 Account=(null) QOS=(null) WCKey={name}
   JobState=PENDING Reason=JobHeldUser Dependency=(null)
   Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=0:15
   RunTime=00:00:00 TimeLimit=UNLIMITED TimeMin=N/A
   SubmitTime=1795272570 EligibleTime=1795272570
   AccrueTime=Unknown
   Command={name}/submit.sh
   WorkDir={name}
   Comment={name}
   StdErr={name}/log.txt
   StdOut={name}/log.txt
   Power=
"""
SPOOFS = (
    "x y",
    "x JobState=FAILED",
    "x Command=y",
    "a B=1",
    "JobId=7 JobState=FAILED Reason=None",
    "".join(map(chr, range(32, 127))),
)


@pytest.mark.parametrize("name", SPOOFS)
def test_no_name_and_no_comment_changes_what_scontrol_says_of_a_job(name: str) -> None:
    said = fields(SCONTROL.format(name=name), "7")
    assert said == {
        "state": "PENDING", "reason": "JobHeldUser", "submitted": "1795272570", "command": f"{name}/submit.sh",
        "log": f"{name}/log.txt", "exit_code": "0:15", "restarts": "2",
    }  # fmt: skip


def test_a_field_that_a_line_end_in_a_name_imitates_is_not_believed() -> None:
    assert "state" not in fields(SCONTROL.format(name="x\n   JobState=FAILED Reason=None"), "7")
    assert fields(SCONTROL.format(name="x"), "8") == {}, "of another job"


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("7\x1fRUNNING\x1fNone\x1f1795272570\x1f/x/a B=1\x1f/y\n", {"7": "RUNNING", "8": "FORGOTTEN"}),
        (
            "7\x1fRUNNING\x1fNone\x1f1\x1f/a\nb/submit.sh\n8\x1fPENDING\x1fNone\x1f1\x1f/c\n",
            {"7": "RUNNING", "8": "PENDING"},
        ),
        ("CLUSTER: west\n8\x1fPENDING\x1fNone\x1f1\x1f/c\n", {"7": "FORGOTTEN", "8": "PENDING"}),
        ("7\x1fPARKED\x1fNone\x1f1795272570\x1f/x\n", {"8": "FORGOTTEN"}),
        ("7 lab train me R 0:10 1 node1\n", {}),
        ("slurm_load_jobs: something is wrong\n", {}),
        ("", {"7": "FORGOTTEN", "8": "FORGOTTEN"}),
    ],
)
def test_a_job_is_gone_only_if_a_whole_answer_leaves_it_out(answer: str, found: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "squeue").write_text(f"#!/bin/sh\ncat <<'END'\n{answer}END\n")
    (tmp_path / "squeue").chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", environ["PATH"])
        assert {number: job.state for number, job in ask(["7", "8"], environ).items()} == found


def test_the_exit_code_of_a_job_is_the_runs_own_or_what_slurm_saw() -> None:
    killed, late, well = job("7", "FAILED", exit_code=143), job("7", "TIMEOUT", exit_code=0), job("7", "COMPLETED")
    assert killed
    assert late
    assert well
    assert exit_code(killed, RunRecord()) == 143
    assert exit_code(killed, RunRecord(status="failed", exit_code=7)) == 7
    assert exit_code(late, RunRecord(status="started")) == 1
    assert exit_code(forgotten("7"), RunRecord(status="started")) == 1, "nobody says that it went well"
    assert exit_code(well, RunRecord()) == 0


def test_a_node_rank_of_the_submit_host_is_refused(primus: Run, project: Path) -> None:
    result = primus("slurm", "-N2", "--", "analyze", "topology", cwd=project, env={"NODE_RANK": "0"})
    assert result.returncode == 2
    assert "unset NODE_RANK" in result.stderr


def test_slurm_holds_no_slurm(primus: Run, project: Path) -> None:
    result = primus("slurm", "-N2", "--", "slurm", "--", "analyze", "topology", cwd=project)
    assert result.returncode == 2
    assert "'slurm' cannot run inside 'slurm'" in result.stderr


def test_switches_of_primus_are_known_among_slurms_flags(primus: Run, project: Path) -> None:
    result = primus(
        "slurm",
        "srun",
        "-N",
        "2",
        "--comment",
        "--json",
        "--dry-run",
        "-J",
        "n",
        "--",
        "analyze",
        "topology",
        cwd=project,
    )
    assert result.returncode == 0, result.stderr
    assert "--comment --json -J n /usr/bin/env" in result.stdout


def test_a_step_is_ended_by_the_numbers_that_its_nodes_wrote_down(tmp_path: Path) -> None:
    run = tmp_path / "a run [1]"
    assert not stop_command(str(run), "step", "TERM"), "no node has begun: srun itself takes the signal"
    for node, known in (("0", "{"), ("1", json.dumps({"job_id": "7", "step_id": "3"}))):
        (run / "nodes" / node).mkdir(parents=True)
        (run / "nodes" / node / "metadata.json").write_text(known, encoding="utf-8")
    assert stop_command(str(run), "step", "TERM") == ["scancel", "--signal=TERM", "7.3"]
    assert stop_command(str(run), "job") == ["scancel", "7"]


def restarts(plan: dict[str, Any]) -> tuple[int, list[int]]:
    """How often the outermost layer restarts, and those inside."""
    return plan["max_restarts"], [hop["max_restarts"] for hop in plan["inner_plans"]]


@pytest.mark.full
def test_restarts_are_those_of_the_outermost_layer_whoever_was_asked_for_them(primus: Run, project: Path) -> None:
    task = ("--", "analyze", "topology")
    assert restarts(plan_of(primus, project, "--max-restarts", "2", "-N2", *task))[0] == 2
    assert restarts(plan_of(primus, project, "-N2", "--", "direct", "--max-restarts", "3", *task))[0] == 3
    mixed = plan_of(primus, project, "--max-restarts=1", "-N2", "--", "direct", "--max-restarts", "3", *task)
    assert restarts(mixed)[0] == 1
    on_node = primus("direct", "--dry-run", "--json", "--max-restarts", "3", *task, cwd=project,
                     env={"PRIMUS_RESTARTED_BY": "slurm"})  # fmt: skip
    assert json.loads(on_node.stdout)["max_restarts"] == 0


def test_several_nodes_that_nothing_holds_together_cannot_restart(primus: Run, project: Path) -> None:
    environ = {"NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "node-0"}
    result = primus("direct", "--max-restarts", "3", "--", "analyze", "topology", cwd=project, env=environ)
    assert result.returncode == 2
    assert "primus slurm srun -N 2 -- direct --max-restarts" in result.stderr


def test_an_option_that_slurm_does_not_have_is_passed_on_with_a_note(primus: Run, project: Path) -> None:
    words = ("sbatch", "-N2", "--partitoin=amd", "--of-site=3", "--", "analyze", "topology")
    found = plan_of(primus, project, *words)
    assert {"--partitoin=amd", "--of-site=3"} <= set(flags(found))
    [note] = [note for note in found["notes"] if "not a known option of Slurm" in note]
    assert "'--partitoin' is not a known option of Slurm: did you mean '--partition'?" in note


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (("srun", "-N1", "--ntask=2"), "--ntasks=2 is not supported"),
        (("sbatch", "--arry=1-3"), "--array is not supported"),
        (("srun", "--imge", "I"), "--image is not supported"),
        (("sbatch", "--wrp", "x"), "--wrap is not supported"),
    ],
)
def test_no_option_that_primus_refuses_is_proposed(
    primus: Run, project: Path, words: tuple[str, ...], refused: str
) -> None:
    found = plan_of(primus, project, *words, "--", "analyze", "topology")
    [note] = [note for note in found["notes"] if "not a known option of Slurm" in note]
    assert refused in note
    assert "did you mean" not in note
    assert f"': {refused}" in found["steps"][-1]["advice"].splitlines()[0]


@pytest.mark.full
def test_a_job_that_may_go_on_later_has_the_flags_for_it_and_the_persons_win(primus: Run, project: Path) -> None:
    task = ("--", "analyze", "topology")
    own = ["--requeue", "--open-mode=append", "--signal=B:USR2@60"]
    assert set(own) & set(flags(plan_of(primus, project, "sbatch", "-N2", *task))) == {"--open-mode=append"}
    assert not set(own) & set(flags(plan_of(primus, project, "sbatch", "-N2", "-o", "one.log", *task)))
    found = plan_of(primus, project, "--max-restarts", "2", "sbatch", "-N2", *task)
    assert set(own) <= set(flags(found))
    assert "primus_core slurm --max-restarts 2 srun -- direct" in found["files"][0]["text"]
    words = ("--no-requeue", "--signal=USR1@120", "--open-mode", "truncate")
    assert not set(own) & set(flags(plan_of(primus, project, "--max-restarts", "2", "sbatch", *words, *task)))


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        (("--max-restarts", "2", "sbatch", "-t", "1"), 60),
        (("--max-restarts", "2", "sbatch", "--time=0:02:00"), 120),
        (("sbatch", "--signal=B:USR1@300", "-t", "0-0:6"), 360),
        (("srun", "--signal=USR1", "-t", "1:30"), 90),
    ],
)
def test_a_time_limit_that_leaves_no_time_before_its_warning_is_told(
    primus: Run, project: Path, words: tuple[str, ...], limit: int
) -> None:
    [note] = plan_of(primus, project, *words, "--", "analyze", "topology")["notes"]
    assert note.startswith("the job may be told to end as soon as it begins: ")
    assert f"before the time limit of {limit} s" in note


def test_a_time_limit_that_leaves_time_needs_no_word() -> None:
    for limit, signal in (("10", "B:USR2@60"), ("1-0", "USR1@600"), ("infinite", "USR1"), ("", "USR1"), ("1", "")):
        assert warned_at_once(limit, signal) == ""


@pytest.mark.full
def test_a_node_that_fails_ends_the_others_unless_these_take_over(primus: Run, project: Path) -> None:
    prepare = ("--", "data", "prepare", "--input", "a", "--output-prefix", "b", "--tokenizer-model", "c")
    assert "--kill-on-bad-exit=1" in flags(plan_of(primus, project, "-N2", "--", "analyze", "topology"))
    found = plan_of(primus, project, "-N2", *prepare)
    assert [flag for flag in flags(found) if "kill-on" in flag] == ["--kill-on-bad-exit=0"]
    scheduler = found["steps"][-1]["scheduler"]
    assert (scheduler["takes_over"], scheduler["together"]) == (True, False)
    assert plan_of(primus, project, "-N2", "-K1", *prepare)["steps"][-1]["scheduler"]["together"]


def test_spare_nodes_are_of_the_jobs_and_do_not_work(primus: Run, project: Path) -> None:
    task = ("--", "analyze", "topology")
    plan = plan_of(primus, project, "--spare-nodes", "2", "sbatch", "-N", "8", *task)
    assert "--no-kill" in flags(plan)
    assert plan["distributed"]["nnodes"] == 6
    environ = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "8", "SLURM_NODEID": "0", "SLURM_JOB_NODELIST": "n[1-8]"}
    inside = plan_of(primus, project, "--spare-nodes", "2", "--max-restarts", "1", "srun", *task, env=environ)
    assert "--nodes=6" in flags(inside)
    assert (inside["steps"][-1]["scheduler"]["spares"], inside["steps"][-1]["scheduler"]["requeue"]) == (
        2,
        ["scontrol", "requeue", "7"],
    )


@pytest.mark.parametrize("words", [("--spare-nodes", "1", "srun", "-N2"), ("--spare-nodes", "2", "sbatch", "-N2")])
def test_spare_nodes_that_cannot_be_are_refused(primus: Run, project: Path, words: tuple[str, ...]) -> None:
    result = primus("slurm", *words, "--", "analyze", "topology", cwd=project)
    assert result.returncode == 2
    assert "--spare-nodes" in result.stderr
    assert not (project / "output").exists()


@pytest.mark.parametrize(
    ("typed", "excluded"),
    [((), "n3,n4"), (("--exclude=n9",), "n9,n3,n4"), (("-x", "n9"), "n9,n3,n4"), (("--exclude=bad/nodes",), "n3,n4")],
)
def test_nodes_that_failed_are_left_out_beside_those_that_a_person_leaves_out(
    typed: tuple[str, ...], excluded: str
) -> None:
    inside = ("/usr/bin/env", "A=1", "python", "--exclude=mine")
    words = SLURM.without(("srun", "-N2", *typed, *inside), ["n3", "n4"])
    assert tuple(words) == ("srun", "-N2", *typed, f"--exclude={excluded}", *inside), "srun takes the last one"
