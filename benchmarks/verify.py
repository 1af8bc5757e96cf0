"""`primus direct -- verify`: its time against the same trainings alone, and the memory of the comparison."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.ratio import Row, paired

PRIMUS = str(Path(sys.executable).with_name("primus"))
EXPERIMENT = """
work_group: b
user_name: b
exp_name: small
workspace: ./output
modules:
  pre_trainer:
    framework: torchtitan
    overrides:
      model: {{family: llama3, dim: {width}, n_layers: 4, n_heads: 4, vocab_size: 4096, ffn_hidden_dim: 1024}}
      training: {{steps: {steps}, seq_len: 256, local_batch_size: 2, global_batch_size: 8, mock_data: true}}
      checkpoint: {{enable: true, interval: 1, last_save_model_only: false}}
      activation_checkpoint: {{mode: none}}
"""
STEPS = 3
TIME, MEMORY = 1.3, 48.0
"""The goals: what reading and comparing may add; bytes a parameter: two states of 12, the start of 4, and copies."""
WIDTHS = (256, 768)


def _verify(folder: Path, width: int) -> float:
    (folder / "exp.yaml").write_text(EXPERIMENT.format(width=width, steps=STEPS))
    words = ("--again", "--shrink", "none", "--steps", str(STEPS), "--layouts", "fsdp=2")
    return _seconds(folder, "direct", "--", "verify", "--config", "exp.yaml", *words)


def _trainings(folder: Path, width: int) -> float:
    """The weights to start from, the reference, and the layout."""
    whole = 0.0
    for ranks, steps in ((1, 1), (1, STEPS), (2, STEPS)):
        (folder / "exp.yaml").write_text(EXPERIMENT.format(width=width, steps=steps))
        more = ("train", "pretrain", "--new", "--config", "exp.yaml")
        whole += _seconds(folder, "direct", "--", *more, ranks=ranks)
    return whole


def _seconds(folder: Path, *words: str, ranks: int = 1) -> float:
    began = time.perf_counter()
    environ = {**os.environ, "GPUS_PER_NODE": str(ranks), "PRIMUS_CACHE": str(folder / "cache")}
    subprocess.run([PRIMUS, *words], cwd=folder, env=environ, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def _bytes_per_parameter(folder: Path) -> float:
    """Of the process that compares, between a small and a large model: what it needs anyway does not count."""
    needed = [_peak(folder, width) for width in WIDTHS]
    (few, small), (many, large) = needed
    return (large - small) / (many - few)


def _peak(folder: Path, width: int) -> tuple[int, int]:
    """Parameters, and bytes that comparing three steps of the reference with themselves takes."""
    (folder / "exp.yaml").write_text(EXPERIMENT.format(width=width, steps=STEPS))
    _seconds(folder, "direct", "--", "train", "pretrain", "--new", "--config", "exp.yaml")
    code = f"""
import json, resource, sys
from functools import partial
from primus_verify import stored
from primus_verify.comparison import Step, Tolerance, compare
from primus_verify.task import find_verifier
verifier = find_verifier("torchtitan")
places = [verifier.checkpoint("output/small", step) for step in range(1, {STEPS + 1})]
steps = [Step(1.0, 1.0, partial(stored.read, verifier, place)) for place in places]
start = stored.read(verifier, places[0])
compare(steps, steps, start, Tolerance(1e-4))
count = sum(value.size for (kind, _), value in start.items() if kind == "weight")
print(json.dumps([count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10]))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    count, peak = json.loads(done.stdout.splitlines()[-1])
    return count, peak


def rows(*, quick: bool) -> Iterator[Row]:
    """Time against the trainings alone, and bytes for each parameter of the model."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        times = paired(partial(_verify, folder, WIDTHS[0]), partial(_trainings, folder, WIDTHS[0]), 1 if quick else 3)
        yield Row("verify: time of one layout", "the same three trainings alone", times, TIME)
        yield Row("verify: memory of the comparison", "one byte a parameter", (_bytes_per_parameter(folder),), MEMORY)
