"""TorchTitan's own trainer really trains through the worker, alone and in parallel, stops and goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from tests.processes import Ended, run_ranks, torchrun
from tests.tensorboard import scalars
from tests.torchtitan.conftest import ON_A_CPU, Program

from primus_core.journal.metrics import OnNonFinite
from primus_data.indexed.reader import Indexed
from primus_train.backend import BackendPlan

pytest.importorskip("torchtitan", reason="torchtitan is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.full]

Resolve = Callable[..., BackendPlan]
Row = dict[str, Any]

TINY = """
model: {family: llama3, dim: 64, n_layers: 4, n_heads: 4, n_kv_heads: 2, vocab_size: 512}
data: {text: text}
training: {steps: 4, seq_len: 64, local_batch_size: 4}
optimizer: {lr: 1e-3}
lr_scheduler: {warmup_steps: 1}
loss: {kind: cross_entropy}
activation_checkpoint: {mode: none}
metrics: {log_freq: 1}
debug: {seed: 7}
"""


def with_torchrun(module: str, ranks: int, environ: Mapping[str, str], cwd: Path) -> list[Ended]:
    """What Primus itself would do."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    environ = {**environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launch, "-m", module], env=environ, cwd=cwd, capture_output=True, text=True, check=False, timeout=300
    )
    return [Ended(done.returncode, done.stdout, done.stderr)]


@pytest.fixture
def train(resolve: Resolve, tmp_path: Path, clean_environ: dict[str, str]) -> Callable[..., tuple[list[Row], str]]:
    """`train(text, ranks=1, real=False)`: what the plan says, done by processes or, really, with torchrun. `fails`: it must.

    Returns the metrics and the log of all ranks.
    """
    source = tmp_path / "text"
    source.mkdir()
    for number in range(40):
        (source / f"{number}.md").write_text("\n".join(f"w{(number * 13 + i * i) % 211} of {i}" for i in range(400)))

    def start(module: str, ranks: int, environ: Mapping[str, str], cwd: Path) -> list[Ended]:
        return run_ranks(module, torchrun(ranks, {**environ, **ON_A_CPU}), cwd=cwd)

    def run(
        text: str = TINY,
        *,
        ranks: int = 1,
        run: str = "run",
        previous: Any = lambda _: (),
        real: bool = False,
        fails: bool = False,
        on_non_finite: OnNonFinite = "stop",
        former: bool = False,
    ) -> Any:
        folder = tmp_path / run
        plan = resolve(text, ranks=ranks, run=folder, previous=previous, on_non_finite=on_non_finite)
        plan = as_planned_formerly(plan, folder) if former else plan
        (folder / "config").mkdir(parents=True)
        (folder / "logs").mkdir()
        (folder / "config" / "backend_config.json").write_text(json.dumps(plan.config))
        environ = {**clean_environ, **{variable.name: variable.value for variable in plan.environment}}
        environ |= {"PRIMUS_RUN_DIR": str(folder), "PRIMUS_METRICS_FILE": str(folder / "metrics.jsonl")}
        del environ["OMP_NUM_THREADS"]
        for step in plan.prepare:
            assert step.argv[:2] == (sys.executable, "-m")
            (ended,) = run_ranks(step.argv[2], [environ], argv=step.argv[3:], cwd=Path(step.cwd))
            assert ended.code == 0, ended.err
        done = (with_torchrun if real else start)(plan.worker.module, ranks, environ, tmp_path)
        assert any(rank.code for rank in done) == fails, "".join(rank.out[-3000:] + rank.err[-3000:] for rank in done)
        metrics = folder / "metrics.jsonl"
        lines = metrics.read_text().splitlines() if metrics.exists() else []
        return [json.loads(line) for line in lines], "".join(rank.out + rank.err for rank in done)

    return run


def as_planned_formerly(plan: BackendPlan, run: Path) -> BackendPlan:
    """As versions without `primus_data.training` planned it: documents in one file, which TorchTitan tokenizes."""
    kept = {name: value for name, value in plan.config["settings"].items() if not name.startswith("validator.")}
    data = {"dataloader.dataset_path": f"{run}/data", "hf_assets_path": f"{run}/data/tokenizer"}
    settings = {**kept, **data, "dataloader.dataset": "primus_text"}
    [step] = plan.prepare
    argv = tuple(word.replace("primus_data.training.prepare", "primus_torchtitan.prepare_text") for word in step.argv)
    config = {name: value for name, value in plan.config.items() if name != "samples"} | {"settings": settings}
    return replace(plan, config=config, prepare=(step._replace(argv=argv),))


def losses(rows: list[Row]) -> list[float]:
    return [row["loss"] for row in rows]


def test_one_rank_trains_and_says_so_in_metrics_and_log(train: Callable[..., Any], tmp_path: Path) -> None:
    rows, log = train(real=True)
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert losses(rows)[-1] < losses(rows)[0]
    last = rows[-1]
    assert (last["steps"], last["global_batch_size"], last["tokens"]) == (4, 4, 4 * 4 * 64)
    assert last["mfu"] is None, "the peak of a CPU is not known"
    planned = json.loads(next(tmp_path.rglob("backend_config.json")).read_text())
    assert last["tflops_per_gpu"] == pytest.approx(last["tokens_per_second"] * planned["flops_per_token"] / 1e12)
    assert all(row["tokens_per_second"] * row["step_time_s"] == pytest.approx(4 * 64) for row in rows)
    assert log.count("INFO - iteration ") == 4
    assert "iteration 4/4 | elapsed time per iteration (ms):" in log
    assert "step:  1" not in log, "TorchTitan's own line would say it twice"
    assert "\x1b[" not in log
    assert (
        "patched for this machine: cpu-device, " in log or os.path.exists("/dev/kfd") or os.path.exists("/dev/nvidia0")
    )


@pytest.mark.parametrize(
    ("name", "parallelism", "lines", "tokens"),
    [
        ("fsdp", "{}", 8, 2048),
        ("ddp", "{data_parallel_replicate_degree: 2, data_parallel_shard_degree: 1}", 8, 2048),
        ("tensor", "{tensor_parallel_degree: 2}", 8, 1024),
        ("context", "{context_parallel_degree: 2}\ntraining: {steps: 4, seq_len: 256, local_batch_size: 1}", 8, 1024),
        ("pipeline", "{pipeline_parallel_degree: 2}", 4, 1024),
        ("interleaved", "{pipeline_parallel_degree: 2, pipeline_parallel_schedule: Interleaved1F1B}", 4, 1024),
    ],
)
def test_two_ranks_train(train: Callable[..., Any], name: str, parallelism: str, lines: int, tokens: int) -> None:
    base = (
        TINY.replace("training: {steps: 4, seq_len: 64, local_batch_size: 4}\n", "")
        if "training" in parallelism
        else TINY
    )
    rows, log = train(f"{base}parallelism: {parallelism}\n", ranks=2, real=name == "fsdp")
    assert losses(rows)[-1] < losses(rows)[0]
    assert rows[-1]["tokens"] == tokens
    assert log.count("INFO - iteration ") == lines, "one line per step from each rank that has the loss"
    shown = [line.split("loss: ")[1].split(" ")[0] for line in log.splitlines() if "iteration 4/4" in line]
    assert len(set(shown)) == 1, "ranks report the same loss"


def test_a_run_that_stopped_continues_exactly(train: Callable[..., Any], tmp_path: Path) -> None:
    text = (
        TINY.replace("steps: 4", "steps: 6, global_batch_size: 8")
        + "checkpoint: {enable: true, interval: 2, last_save_model_only: false}\n"
    )
    whole, _ = train(text, run="whole")
    (tmp_path / "whole" / "checkpoints" / "step-6" / ".metadata").unlink()  # as if it had been stopped before step 6

    def previous(pattern: str) -> tuple[str, ...]:
        return tuple(str(path) for path in sorted((tmp_path / "whole").glob(pattern)))

    rest, log = train(text, run="rest", previous=previous)
    assert "Training starts at step 5" in log
    assert [row["step"] for row in rest] == [5, 6]
    assert losses(rest) == losses(whole)[4:]
    assert rest[-1]["tokens"] == whole[-1]["tokens"]
    two, _ = train(text, ranks=2, run="two", previous=previous)
    assert losses(two) == pytest.approx(losses(whole)[4:], rel=1e-5), "the same samples, on two ranks"

    for number, changed in enumerate(("lr: 5e-3", "lr: 1e-3, weight_decay: 5.0")):
        other, _ = train(text.replace("lr: 1e-3", changed), run=f"other{number}", previous=previous)
        assert losses(other)[0] == losses(whole)[4]
        assert losses(other)[1] != losses(whole)[5], f"step 5 was made with {changed}"


def test_validation_runs_on_documents_that_training_does_not_see(train: Callable[..., Any], tmp_path: Path) -> None:
    text = (
        TINY.replace("text: text", "text: text, document_chars: 1000")
        + "validator: {enable: true, freq: 2, steps: 2}\n"
    )
    rows, log = train(text)
    held_out_losses = {row["step"]: row["validation_loss"] for row in rows if "validation_loss" in row}
    assert set(held_out_losses) == {1, 2, 4}, "TorchTitan begins with one"
    assert f"iteration 4/4 | validation loss: {held_out_losses[4]:.5f}" in log
    assert "validate step" not in log, "TorchTitan's own line would say it twice"
    seen, held_out = (Indexed(str(tmp_path / "run/data" / part)) for part in ("train", "validation"))
    trained_on = {seen.document(number).tobytes() for number in range(seen.documents)}
    assert held_out.documents
    assert not trained_on & {held_out.document(number).tobytes() for number in range(held_out.documents)}


def test_the_time_of_a_step_is_torchtitans_own_without_saves_and_evaluations(
    train: Callable[..., Any], tmp_path: Path
) -> None:
    text = TINY.replace("steps: 4, seq_len: 64", "steps: 16, seq_len: 256").replace(
        "text: text", "text: text, document_chars: 1000"
    )
    text = text.replace("{log_freq: 1}", "{log_freq: 2, enable_tensorboard: true}")
    rows, _ = train(
        f"{text}validator: {{enable: true, freq: 8, steps: 2}}\ncheckpoint: {{enable: true, interval: 5}}\n"
    )
    found = [row for row in rows if "loss" in row]
    assert [row["step"] for row in found] == [1, *range(2, 17, 2)]
    assert all(row["tokens_per_second"] * row["step_time_s"] == pytest.approx(4 * 256) for row in found)
    evaluated, saved = ({row["step"] for row in found if row[name] > 0.02} for name in ("evaluation_s", "save_s"))
    assert (evaluated, saved) == ({2, 10}, {6, 12, 16}), "a line has what was since the one before"
    own = scalars(tmp_path / "run")["throughput(tps)"]
    alone = [row for row in found[1:] if row["step"] not in evaluated | saved]
    ratios = [own[row["step"]] / row["tokens_per_second"] for row in alone]
    assert median(ratios) == pytest.approx(1, rel=0.05), ratios  # two clocks, on a machine that may be busy
    events = [json.loads(line) for line in (tmp_path / "run/logs/events.jsonl").read_text().splitlines()]
    [ended] = [event for event in events if event["event"] == "training_ended"]
    assert ended["save_s"] > 0.02 < ended["evaluation_s"], "after the last step"


@pytest.mark.parametrize("choice", ["stop", "warn"])
def test_a_loss_that_is_no_number_ends_the_run_as_the_experiment_says(
    train: Callable[..., Any], tmp_path: Path, choice: OnNonFinite
) -> None:
    text = TINY.replace("lr: 1e-3", "lr: 1e+30").replace("steps: 4", "steps: 7")
    rows, log = train(text, fails=choice == "stop", on_non_finite=choice)
    bad = [row["step"] for row in rows if row["loss"] is None]
    assert len(rows) == (bad[2] if choice == "stop" else 7)
    assert log.count("WARNING: the loss of step") == 3
    assert (f"TrainingError: the loss is nan at steps {bad[0]}, {bad[1]}, {bad[2]}\n" in log) == (choice == "stop")
    events = [json.loads(line) for line in (tmp_path / "run/logs/events.jsonl").read_text().splitlines()]
    assert [event["step"] for event in events if event["event"] == "loss_not_finite"] == bad


def test_the_last_step_is_logged_so_that_no_run_completes_with_a_loss_that_is_no_number(
    train: Callable[..., Any],
) -> None:
    text = TINY.replace("lr: 1e-3", "lr: 1e+30").replace("log_freq: 1", "log_freq: 10")
    rows, log = train(text, fails=True)
    assert [(row["step"], row["loss"] is None) for row in rows] == [(1, False), (4, True)]
    assert "TrainingError: the loss is nan at step 4\n" in log


def test_a_part_to_validate_on_that_is_too_short_is_told_before_the_first_step(train: Callable[..., Any]) -> None:
    text = TINY.replace("{text: text}", "{text: text, split: '99.99,0.01'}") + "validator: {enable: true, steps: 1}\n"
    rows, log = train(text, fails=True)
    assert rows == []
    assert "0.0001 of the data '" in log
    assert "is too short\n  why: 0 documents with 0 tokens, fewer than a sample of 64\n" in log
    assert "or a larger share: data.split\n" in log


def test_ranks_have_the_variables_that_torchrun_sets(tmp_path: Path, clean_environ: dict[str, str]) -> None:
    (tmp_path / "show.py").write_text("import json, os; print(json.dumps(dict(os.environ)))")
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", "show.py"]
    environ = {**clean_environ, "OMP_NUM_THREADS": "1"}  # as torchrun sets it for two
    done = subprocess.run(words, env=environ, cwd=tmp_path, capture_output=True, text=True, check=True)
    theirs = json.loads(done.stdout)
    (ours,) = torchrun(1, environ)
    differ = {name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)}
    agents = {"TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE"}
    assert differ == {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", *agents}


def test_the_planned_metrics_rank_is_torchtitans(program: Program) -> None:
    code = """
import types
from primus_torchtitan.patches import apply_all
apply_all()
from torchtitan.components.metrics import _get_metrics_rank
from primus_torchtitan.layout import Layout, metrics_rank
for pipeline in (1, 2, 4):
    for schedule in ("1F1B", "Interleaved1F1B", "ZBVZeroBubble"):
        layout = Layout(replicate=1, shard=2, context=1, tensor=2, pipeline=pipeline)
        dims = types.SimpleNamespace(pp_enabled=pipeline > 1, pp=pipeline, world_size=layout.world_size)
        assert metrics_rank(layout, schedule) == _get_metrics_rank(parallel_dims=dims, pp_schedule=schedule)
"""
    ended = program(code)
    assert ended.code == 0, ended.err
