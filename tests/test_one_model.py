"""One model under several frameworks: `examples/one-model` trained with each, and the runs compared.

python -m tests.python312 beside pytest tests/test_one_model.py

TorchTitan trains in this environment; the others in those whose `bin` folders the variables below name.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.conftest import ROOT, plain_environ

from primus_train.models import catalogue
from primus_train.models.arithmetic import parameters

VARIABLES = {"megatron": "PRIMUS_TEST_MEGATRON", "maxtext": "PRIMUS_TEST_MAXTEXT"}
pytestmark = [
    pytest.mark.full,
    pytest.mark.torch,
    pytest.mark.skipif(VARIABLES["megatron"] not in os.environ, reason=f"{__doc__.splitlines()[2]} does it"),
]
EXAMPLES = ROOT / "examples/one-model"
TRAINED = 60
FEWER = {
    "torchtitan": (f"training.steps={TRAINED}",),
    "megatron": (f"train_iters={TRAINED}",),
    "maxtext": (f"steps={TRAINED}", "learning_rate_schedule_steps=100"),
}
"""As many steps, on the schedule of the example's hundred."""
LAST = 20
"""Steps whose mean loss is compared: single ones differ by what is in their batch."""
NEAR = 0.3
"""Of what the losses fell by, how far they may be apart: weights begin as each framework draws them."""
TEXT = ("asyncio", "email", "http", "importlib", "json", "logging", "multiprocessing", "unittest", "xml")
"""Parts of the standard library: every interpreter gets the same."""


class Trained(NamedTuple):
    """A run that completed."""

    directory: Path
    said: dict[str, Any]
    """Its plan's hyperparameters."""
    losses: list[float]


def installed() -> dict[str, Path]:
    """The frameworks that are here, with the `bin` folders of their environments."""
    given = {name: os.environ.get(variable) for name, variable in VARIABLES.items()}
    others = {name: Path(folder) for name, folder in given.items() if folder and (EXAMPLES / f"{name}.yaml").exists()}
    return {"torchtitan": Path(sys.executable).parent, **others}


def pairs() -> list[tuple[str, str]]:
    return list(combinations(installed(), 2))


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the text."""
    folder = tmp_path_factory.mktemp("one-model")
    for name in TEXT:
        shutil.copytree(Path(sysconfig.get_paths()["stdlib"], name), folder / "text" / name)
    return folder


@pytest.fixture(scope="module")
def trained(workspace: Path) -> dict[str, Trained]:
    """A run of each framework, side by side: a start waits more than it computes."""
    frameworks = installed()
    with ThreadPoolExecutor() as pool:
        runs = pool.map(lambda name: train(name, frameworks[name], workspace), frameworks)
        return dict(zip(frameworks, runs, strict=True))


def train(framework: str, folder: Path, workspace: Path) -> Trained:
    words = ["--config", str(EXAMPLES / f"{framework}.yaml"), "data.text=text", *FEWER[framework]]
    done = subprocess.run(
        [str(folder / "primus"), "direct", "--", "train", "pretrain", *words],
        env={**plain_environ(), "PATH": f"{folder}:{os.environ['PATH']}", "PRIMUS_CACHE": str(workspace / "cache")},
        cwd=workspace, text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    directory = (workspace / "output" / f"one-model-{framework}").resolve()
    said = json.loads((directory / "config/backend_config.json").read_text())["hyperparameters"]
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return Trained(directory, said, [row["loss"] for row in rows if "loss" in row])


def last(run: Trained) -> float:
    """The mean loss of its last steps."""
    return sum(run.losses[-LAST:]) / LAST


@pytest.mark.parametrize("framework", installed())
def test_every_framework_builds_the_model_of_the_file(trained: dict[str, Trained], framework: str) -> None:
    known = parameters(catalogue.find(str(EXAMPLES / "llama-1M.yaml"), {}).facts).total
    assert trained[framework].said["parameters"] == known == 1_311_872
    if framework != "maxtext":  # which counts in billions
        log = "".join(path.read_text() for path in (trained[framework].directory / "logs").glob("rank_0*.log"))
        assert str(known) in log.replace(",", ""), "what the framework itself counted"


@pytest.mark.parametrize("framework", installed())
def test_the_loss_falls(trained: dict[str, Trained], framework: str) -> None:
    run = trained[framework]
    assert len(run.losses) == TRAINED
    assert run.losses[0] - last(run) > 1.5


@pytest.mark.parametrize(("one", "other"), pairs())
def test_the_curves_are_close(trained: dict[str, Trained], one: str, other: str) -> None:
    a, b = trained[one], trained[other]
    fall = min(run.losses[0] - last(run) for run in (a, b))
    assert abs(last(a) - last(b)) < NEAR * fall


@pytest.mark.parametrize(("one", "other"), pairs())
def test_the_runs_differ_in_their_framework_and_in_no_hyperparameter(
    trained: dict[str, Trained], one: str, other: str, workspace: Path
) -> None:
    words = [str(Path(sys.executable).with_name("primus")), "runs", "diff", f"one-model-{one}", f"one-model-{other}"]

    def said(*more: str) -> str:
        done = subprocess.run([*words, *more], cwd=workspace, env=plain_environ(), text=True, capture_output=True,
                              timeout=60, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    data = json.loads(said("--json"))
    rows = [row for row in data["differences"] if row["category"] == "config"]
    assert [(row["name"], row["before"], row["after"]) for row in rows] == [("framework", one, other)]
    assert {"parameters": 1_311_872, "lr": 3e-3, "steps": TRAINED, "decay": "cosine"}.items() <= data["agreed"].items()
    assert [point["step"] for point in data["curves"]][:: len(data["curves"]) - 1] == [1, TRAINED]
    text = said()
    assert "parameters 1311872" in text
    assert len(text.splitlines()) < 80


@pytest.mark.parametrize(
    ("model", "one", "other"),
    [
        ("llama3.1_8B", "torchtitan", "megatron"),
        ("qwen3_0.6B", "torchtitan", "maxtext"),
        ("qwen2.5_0.5B", "megatron", "maxtext"),
        ("mixtral_8x7B", "megatron", "maxtext"),
        ("deepseek_v2_lite", "megatron", "maxtext"),
    ],
)
def test_the_same_weights_and_tokens_give_the_same_loss_and_gradients(
    model: str, one: str, other: str, workspace: Path
) -> None:
    folders = installed()
    if not {one, other} <= folders.keys():
        pytest.skip(f"no environment with {one} or {other}")

    def primus(*words: str) -> None:
        done = subprocess.run(
            [str(folders[one] / "primus"), *words],
            env={**plain_environ(), "PATH": f"{folders[one]}:{os.environ['PATH']}",
                 "PRIMUS_CACHE": str(workspace / "cache")},
            cwd=workspace, text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=900, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    primus("config", "new", model, "--backend", one, "--gpu", "MI300X", "-o", f"{model}.yaml")
    python = str(folders[other] / "python")
    primus("direct", "--", "verify", "--config", f"{model}.yaml", "--against", other, "--against-python", python)
