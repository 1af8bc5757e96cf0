"""What to do, in the run's own numbers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from primus_core.journal.record import RunRecord
from primus_diagnose.advice.advise import advise, known
from primus_diagnose.advice.figures import Figures, of_run
from primus_diagnose.reasoning.findings import made
from primus_diagnose.signatures.catalogue import built_in
from primus_diagnose.verdict import Advice, Hit
from primus_machine.host import HostRoot

CATALOGUE = built_in()
FIGURES: dict[str, Any] = {"micro_batch_size": 4, "global_batch_size": 64, "seq_length": 8192, "lr": 3e-4, "warmup_steps": 0,
                           "vocab_size": 256, "steps": 100}  # fmt: skip


def advised(signature: str, *, framework: str = "torchtitan", line: str = "", **fields: Any) -> list[Advice]:
    one = CATALOGUE[signature]
    match = one.search(line)
    hit = Hit(signature, line, groups=one.groups(match) if match else {}, time=1.0)
    figures = Figures(**{"framework": framework, "hyperparameters": FIGURES, **fields})
    return list(advise(made(one, hit), one.remedies, figures, HostRoot()))


def write_metrics(directory: Path, rows: list[dict[str, Any]]) -> None:
    """The lines of a run of 100 steps."""
    lines = [json.dumps({"steps": 100, "loss": 1.0, **row}) + "\n" for row in rows]
    (directory / "metrics.jsonl").write_text("".join(lines))


def test_every_remedy_of_a_signature_exists() -> None:
    assert {name for one in CATALOGUE for name in one.remedies} <= known()


@pytest.mark.parametrize(
    ("framework", "words"),
    [
        ("torchtitan", "training.local_batch_size=2 training.global_batch_size=64"),
        ("megatron", "micro_batch_size=2"),
        ("maxtext", "per_device_batch_size=2 gradient_accumulation_steps=2"),
    ],
)
def test_out_of_memory_halves_the_micro_batch_and_says_what_it_costs(framework: str, words: str) -> None:
    batch, recompute, sequence = advised("oom.gpu_torch", framework=framework)
    assert (batch.before, batch.after, batch.words) == (4, 2, words)
    assert "global batch of 64" in batch.cost
    assert recompute.after == "full"
    assert (sequence.before, sequence.after) == (8192, 4096)


def test_a_port_that_the_program_itself_asks_for_is_not_master_port() -> None:
    line = "torch.distributed.DistNetworkError: The server socket has failed to listen. port: 29555, EADDRINUSE port: 29555"
    plan = {"distributed": {"master_port": 30043}}
    [own] = advised("c10d.port_in_use", line=line, plan=plan)
    assert (own.action[:34], own.words) == ("port 29555 is not MASTER_PORT (300", "")
    [other] = advised("c10d.port_in_use", line=line, plan={"distributed": {"master_port": 29555}})
    assert other.words.startswith("MASTER_PORT=")


@pytest.mark.parametrize(
    ("code", "action"),
    [
        ("port2.py:1 in <module>", "the program itself asks for a port that is in use, at port2.py:1"),
        ("", "use another"),
    ],
)
def test_a_program_that_binds_a_port_itself_is_to_take_another(code: str, action: str) -> None:
    one = CATALOGUE["c10d.port_in_use"]
    cause = made(one, Hit(one.id, "OSError: [Errno 98] Address already in use", code=code))
    [found] = advise(cause, one.remedies, Figures(), HostRoot())
    assert found.action.startswith(action)
    assert ("MASTER_PORT" in found.action) == (not code)


def test_a_path_in_a_container_is_not_corrected_by_what_this_machine_has(tmp_path: Path) -> None:
    line = f"FileNotFoundError: [Errno 2] No such file or directory: '{tmp_path}/mymount/a.txt'"
    record, outside = RunRecord(cwd=str(tmp_path)), RunRecord(cwd="/somewhere")
    place = {"place": {"outer": "container"}}
    assert advised("fs.not_found", line=line, plan=place, record=outside) == []
    for plan, one in ((place, record), ({}, outside)):  # the current folder is mounted
        [found] = advised("fs.not_found", line=line, plan=plan, record=one)
        assert found.action == f"correct the path: {tmp_path} exists, and has no 'mymount'"


@pytest.mark.parametrize(("missing", "folder"), [("/usr", "/usr"), ("/usr/lib", "/usr/lib"), (__file__, None)])
def test_of_a_path_that_is_here_its_folder_is_to_be_mounted_and_never_all_of_the_machine(
    missing: str, folder: str | None
) -> None:
    line = f"FileNotFoundError: [Errno 2] No such file or directory: '{missing}'"
    [found] = advised("fs.not_found", line=line)
    assert found.action.endswith(f"in a container: --mount {folder or os.path.dirname(missing)}")


READ_ONLY = "OSError: [Errno 30] Read-only file system: "
DENIED = "PermissionError: [Errno 13] Permission denied: "


@pytest.mark.parametrize(
    ("signature", "line", "is_advised"),
    [
        ("fs.read_only", f"{READ_ONLY}'/work/output/small/checkpoints'", True),
        ("fs.read_only", f"{READ_ONLY}'/data/x'", False),
        ("fs.read_only", "EXT4-fs error (device sda1)", False),
        ("fs.permission", f"{DENIED}'output/x'", True),
        ("fs.permission", f"{DENIED}'out.txt'", False),
        ("fs.permission", f"{DENIED}'/work/output2/x'", False),
        ("fs.permission", "mkdir: cannot create directory '/work/output/small/x': Permission denied", True),
        ("fs.permission", "Permission denied (os error 13)", False),
    ],
)
def test_another_workspace_is_advised_where_that_is_what_cannot_be_written(
    signature: str, line: str, is_advised: bool
) -> None:
    found = advised(signature, line=line, directory="/work/output/small", record=RunRecord(cwd="/work"))
    assert [(one.setting, one.before) for one in found] == [("workspace", "/work/output")] * is_advised


@pytest.mark.parametrize(
    ("words", "action"),
    [
        (("--mount", "/d:/data:ro"), "mount it without `:ro`: `/d:/data` instead of `/d:/data:ro`"),
        (("--mount=/data:ro",), "mount it without `:ro`: `--mount=/data` instead of `--mount=/data:ro`"),
        (("--mount", "/d:/dat:ro"), "in a container: mount its folder, without `:ro`: `--mount FOLDER:/data/a`"),
    ],
)
def test_a_path_that_a_container_has_read_only_is_advised_to_be_mounted_otherwise(
    words: tuple[str, ...], action: str
) -> None:
    record = RunRecord(cwd="/work", command=("primus", "container", *words, "--", "run", "w.py"))
    plan = {"place": {"outer": "container"}}
    line = f"{READ_ONLY}'/data/a/x'"
    [found] = advised("fs.read_only", line=line, plan=plan, record=record, directory="/work/output/w")
    assert found.action == action
    assert advised("fs.read_only", line=line, plan={}, record=record, directory="/work/output/w") == []


def test_the_file_of_a_module_is_found_without_importing_it(tmp_path: Path) -> None:
    one = CATALOGUE["py.import_name"]
    (tmp_path / "cuda.py").write_text("raise AttributeError\n")
    for line in (
        "ImportError: cannot import name 'cudart' from 'cuda' (/tmp/cuda.py)",
        "AttributeError: partially initialized module 'cuda.bindings' has no attribute 'cudart'",
        "ModuleNotFoundError: No module named 'cuda.bindings'; 'cuda' is not a package",
    ):
        match = one.search(line)
        assert match
        assert not CATALOGUE["py.module_missing"].search(line)
        [command] = re.findall("`(python -c .*)`", made(one, Hit(one.id, line, groups=one.groups(match))).fix[0])
        done = subprocess.run(command.replace("python", sys.executable, 1), shell=True, cwd=tmp_path, check=True,
                              capture_output=True, text=True)  # fmt: skip
        assert done.stdout == f"{tmp_path}/cuda.py\n"


@pytest.mark.parametrize(("ranks", "is_advised"), [(1, False), (2, True), (None, True)])
def test_a_hang_of_a_single_rank_has_no_flight_recorder(ranks: int | None, is_advised: bool) -> None:
    found = advised("run.hung", record=RunRecord(world_size=ranks))
    assert "stacks in hang/" in found[0].action
    assert any("TORCH_FR_BUFFER_SIZE" in one.action for one in found) == is_advised


@pytest.mark.parametrize(
    ("word", "saved", "told"),
    [
        ("-N2", 6, "primus slurm sbatch --signal=B:USR1@300"),
        ("--signal=B:USR1@20", 6, "raise `--grace-period`"),
        ("--signal", 7, ""),
        ("-N2", 7, ""),
    ],
)
def test_a_command_that_asks_for_a_signal_is_not_told_to(word: str, saved: int, told: str, tmp_path: Path) -> None:
    (tmp_path / f"checkpoints/step-{saved}").mkdir(parents=True)
    record = RunRecord(command=("primus", "slurm", "sbatch", word), last_step=7)
    found = " ".join(one.action for one in advised("sched.time_limit", record=record, directory=str(tmp_path)))
    assert told in found
    assert ("signal" in found) == bool(told)


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("yaml", "-m pip install PyYAML"),
        ("google.protobuf", "-m pip install protobuf"),
        ("my_utils", "-m pip install <package>"),
    ],
)
def test_only_known_packages_are_named(module: str, command: str) -> None:
    [advice] = advised("py.module_missing", line=f"ModuleNotFoundError: No module named '{module}'")
    assert advice.action.endswith(f"{command}`")


def test_what_the_run_has_already_is_not_advised() -> None:
    settings = {"activation_checkpoint.mode": "full"}
    figures = {**FIGURES, "micro_batch_size": 1}
    found = advised("oom.gpu_torch", settings=settings, hyperparameters=figures)
    assert [one.action for one in found] == ["halve the sequence length"]


def test_without_figures_nothing_is_made_up() -> None:
    assert advised("oom.gpu_torch", framework="", hyperparameters={}) == []
    assert advised("num.nan_log", framework="", hyperparameters={}) == []


def test_a_learning_rate_is_a_tenth_and_a_sane_one() -> None:
    [rate, warmup] = advised("num.nan_log", hyperparameters={**FIGURES, "steps": 1000})
    assert (rate.before, rate.after) == (3e-4, 3e-5)
    assert (warmup.before, warmup.after) == (0, 100)


def test_no_longer_warm_up_is_advised_than_the_training() -> None:
    [rate] = advised("num.nan_log", hyperparameters={**FIGURES, "warmup_steps": 60})
    assert rate.action == "lower the learning rate"


def test_a_training_that_diverged_is_told_where_to_start_again(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "steps": 9, "loss": null}\n')
    assert advised("num.nan_log", directory=str(tmp_path))[-1].words == "--new"


def test_the_vocabulary_that_the_tokenizer_needs(tmp_path: Path) -> None:
    [given] = advised("config.vocabulary", plan={"config": {"data": {"vocab_size": 512}}})
    assert (given.before, given.after) == (256, 512)
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0, "b": 300}}, "added_tokens": [{"id": 301}]}')
    [counted] = advised("config.vocabulary", settings={"hf_assets_path": str(tmp_path)})
    assert counted.after == 302


@pytest.mark.parametrize("before", [512, None])
def test_the_vocabulary_of_megatron_is_one_that_its_ranks_can_split(before: int | None) -> None:
    settings = {"tensor_model_parallel_size": 2, "padded_vocab_size": before}
    line = "primus: error: token id 1626 is outside the model's vocabulary of 256"
    [found] = advised("config.vocabulary", framework="megatron", line=line, settings=settings)
    assert (found.setting, found.before, found.after) == ("padded_vocab_size", before, 1628)
    assert found.words == "padded_vocab_size=1628"


def test_a_vocabulary_that_megatron_cannot_split_is_rounded_up() -> None:
    line = "AssertionError: 1627 is not divisible by 2"
    settings = {"tensor_model_parallel_size": 2, "padded_vocab_size": 1627}
    [found] = advised("config.batch", framework="megatron", line=line, settings=settings)
    assert (found.before, found.words) == (1627, "padded_vocab_size=1628")
    heads = {**settings, "padded_vocab_size": 512}
    assert advised("config.batch", framework="megatron", line=line, settings=heads) == []


@pytest.mark.parametrize(
    ("device", "optimizer", "nodes", "line", "told"),
    [
        (
            "cpu",
            "AdamW",
            1,
            "MemoryError",
            "its weights and optimizer alone need 96 GB on each node, and there are 25 GB",
        ),
        ("cpu", "SGD", 1, "MemoryError", "its weights alone need 32 GB on each node, and there are 25 GB"),
        ("cpu", "AdamW", 4, "MemoryError", ""),
        ("cpu", "AdamW", 4, "the memory limit of 8,192.0 MiB was reached: the kernel killed 1 process", "are 9 GB"),
        ("gpu", "AdamW", 1, "MemoryError", ""),
    ],
)
def test_a_model_that_is_larger_than_the_memory_of_the_machine_is_the_first_thing_to_change(
    device: str, optimizer: str, nodes: int, line: str, told: str, tmp_path: Path
) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env/system_info.json").write_text('{"memory_bytes": 25276502016}')
    figures = {**FIGURES, "parameters": 8_030_261_248, "optimizer": optimizer}
    plan = {"config": {"device": device}, "distributed": {"nnodes": nodes}}
    signature = "oom.host_python" if line == "MemoryError" else "oom.host_kernel"
    found = advised(signature, framework="megatron", line=line, directory=str(tmp_path), plan=plan,
                    hyperparameters=figures, settings={"num_workers": 8})  # fmt: skip
    assert [one.words for one in found] == [""] * bool(told) + ["num_workers=4"]
    assert told in found[0].action
    assert found[0].action.startswith("use a smaller model") == bool(told)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_no_more_data_loader_workers_are_advised_than_there_are(workers: int) -> None:
    found = advised("oom.host_python", framework="megatron", settings={"num_workers": workers})
    assert all(one.after < workers for one in found)


def test_a_damaged_checkpoint_is_passed_over_and_none_is_to_be_removed(tmp_path: Path) -> None:
    for name in ("step-20", "step-100", "step-90", "other"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    [found] = advised("ckpt.truncated", directory=str(tmp_path))
    passed = f"it passes over {tmp_path}/checkpoints/step-100, and continues from step-90"
    assert found.action == f"start it again with the same settings: {passed}"
    assert advised("ckpt.mismatch", directory=str(tmp_path)) == []


@pytest.mark.parametrize(
    ("first", "every", "saved", "told"),
    [
        (1, 1, 15, "it made 20 of 100 steps; from the checkpoint of step 15, the rest takes about 14 min 40 s, with"),
        (1, 1, None, "it made 20 of 100 steps; there is no checkpoint, and all of them take about 17 min 10 s, with"),
        (16, 2, 15, "from the checkpoint of step 15, the rest takes about 14 min 40 s"),
        (20, 1, 20, "from the checkpoint of step 20, the rest takes about 13 min 50 s"),
    ],
)
def test_the_time_that_the_rest_takes_is_that_of_the_steps_of_this_run_and_of_its_start(
    first: int, every: int, saved: int | None, told: str, tmp_path: Path
) -> None:
    """Ten seconds a step, after a start of 30 s. An earlier job of the run has a line, too."""
    if saved is not None:
        (tmp_path / f"checkpoints/step-{saved}").mkdir(parents=True)
    times = ((step, 1030.0 + 10 * (step - first)) for step in range(first, 21, every))
    rows = [{"step": step, "time": time, "step_time_s": 10.0} for step, time in times]
    write_metrics(tmp_path, [{"step": 9, "time": 10.0}, *rows])
    record = RunRecord(last_step=20, started=1000.0, ended=9000.0)
    [found, *_] = advised("sched.time_limit", record=record, directory=str(tmp_path))
    assert told in found.action
    assert ("which continues it" in found.action) == (saved is not None)


@pytest.mark.parametrize("rows", [[], [{"step": 20}], [{"step": 20, "time": 900.0}], [{"step": 20, "time": 1100.0,
                                  "step_time_s": None}]])  # fmt: skip
def test_without_times_in_the_metrics_nothing_is_said_of_the_time(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    write_metrics(tmp_path, rows)
    record = RunRecord(last_step=20, started=1000.0, ended=1600.0)
    [found, _] = advised("sched.time_limit", record=record, directory=str(tmp_path))
    assert found.action == "start it again with time enough: it made 20 of 100 steps"


def test_no_time_is_reckoned_of_more_steps_than_anybody_makes(tmp_path: Path) -> None:
    write_metrics(tmp_path, [{"step": 20, "time": 1100.0, "step_time_s": 1.0}])
    record, figures = RunRecord(last_step=20, started=1000.0, ended=1600.0), {"steps": 10**400}
    found = advised("sched.time_limit", record=record, directory=str(tmp_path), hyperparameters=figures)
    assert not any("steps" in one.action for one in found)


@pytest.mark.parametrize("word", ["-N2", "--signal=B:USR1@20"])
def test_a_job_that_ended_before_the_first_step_needs_more_time_and_no_checkpoint(word: str, tmp_path: Path) -> None:
    record = RunRecord(command=("primus", "slurm", "sbatch", word), started=1000.0, ended=1060.0)
    [found] = advised("sched.time_limit", record=record, directory=str(tmp_path))
    assert found.action == "the job ended before the first step: give it more time (`-t` of Slurm)"
    [found] = advised("sched.time_limit", framework="", record=record, directory=str(tmp_path))
    assert found.action == "the job ended before it was done: give it more time (`-t` of Slurm)"


def test_a_run_that_was_killed_has_made_the_steps_of_its_lines(tmp_path: Path) -> None:
    write_metrics(tmp_path, [{"step": 19}, {"step": 20}])
    [found, signal] = advised("sched.time_limit", directory=str(tmp_path))
    assert "it made 20 of 100 steps" in found.action
    assert "save a checkpoint before the end" in signal.action


def test_a_damaged_plan_gives_no_figures(tmp_path: Path) -> None:
    for text in ("", "[]", '{"config": 3}', "{" * 10_000):
        (tmp_path / "plan.json").write_text(text)
        assert of_run(str(tmp_path), RunRecord()).hyperparameters == {}


@pytest.mark.parametrize("signature", ["hang.rank", "collective.rank_behind"])
@pytest.mark.parametrize(("kind", "count"), [("stopped", 1), ("native", 0)])
def test_a_process_that_was_stopped_is_no_fault_of_the_program(signature: str, kind: str, count: int) -> None:
    one = CATALOGUE[signature]
    cause = made(one, Hit(signature, "", groups={"what": "it is elsewhere", "kind": kind}))
    found = list(advise(cause, one.remedies, Figures(), HostRoot()))
    assert len(found) == count
    assert all("kill -CONT" in advice.action for advice in found)


def test_no_advice_promises_a_run_without_checkpoints_that_it_continues() -> None:
    """A benchmark or a program of one's own has none."""
    promises = [step for one in CATALOGUE for step in one.fix if "continue" in step and "from" in step]
    about_checkpoints = {one.id for one in CATALOGUE if one.category == "checkpoint" or one.id.startswith("ckpt.")}
    others = [step for one in CATALOGUE if one.id not in about_checkpoints for step in one.fix if step in promises]
    assert others
    assert all("a training with checkpoints continues" in step for step in others)
