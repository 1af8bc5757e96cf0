"""`--profile STEPS` with TorchTitan: its own settings, which a person's win over; and the trace of a real training."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.torchtitan import quickstart

pytestmark = pytest.mark.torch


def settings(primus: Run, *words: str) -> dict[str, object]:
    """What TorchTitan would get."""
    done = primus("direct", "--dry-run", "--json", *quickstart.train(*words)[1:])
    assert done.returncode == 0, done.stderr
    return {k: v for k, v in json.loads(done.stdout)["config"]["settings"].items() if k.startswith("profiler.")}


@pytest.mark.full
def test_the_steps_become_a_cycle_of_its_profiler(primus: Run) -> None:
    assert settings(primus, "--profile", "10:13") == {
        "profiler.enable_profiling": True,
        "profiler.profile_freq": 13,
        "profiler.profiler_active": 4,
        "profiler.profiler_repeat": 1,
        "profiler.profiler_warmup": 3,
        "profiler.save_traces_folder": "traces",
    }
    found = settings(primus, "--profile", "2", "profiler.profiler_warmup=0", "profiler.save_traces_folder=mine")
    assert (found["profiler.profiler_warmup"], found["profiler.save_traces_folder"]) == (0, "mine")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--profile", "13:10"), "names no steps"),
        (("--profile", "10:20", "training.steps=20"), "training ends at step 20"),
    ],
)
def test_steps_without_a_trace_are_refused(primus: Run, words: tuple[str, ...], said: str) -> None:
    done = primus("direct", "--dry-run", *quickstart.train(*words)[1:])
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


@pytest.mark.full
def test_a_training_leaves_a_trace_of_these_steps_and_a_report_reads_it(primus: Run, tmp_path: Path) -> None:
    done = primus(*quickstart.train("training.steps=6", "--profile", "3:4"))
    assert done.returncode == 0, done.stderr[-3000:]
    run = (tmp_path / "output/quickstart").resolve()
    [path] = run.glob("traces/*/*.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    steps = [one for one in events if one["name"].startswith("Optimizer.step#AdamW")]
    assert len(steps) == 2
    [found] = json.loads(primus("report", str(run), "--json").stdout)["runs"]
    [rank] = found["traces"]["ranks"]
    assert rank["name"] == "rank 0"
    assert rank["compute_s"] + rank["exposed_s"] + rank["idle_s"] == pytest.approx(rank["span_s"])
    assert found["figures"]["trace_gemm"]["value"] > 0.01
