"""What a continuation changes is what the optimizer then holds, whatever the checkpoint held."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.megatron.conftest import Train, saved, tiny

pytest.importorskip("megatron.training", reason="megatron-core is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.full]

BEFORE = {"lr": 3e-3, "min_lr": 3e-4, "lr_decay_style": "cosine", "lr_warmup_iters": 1, "train_iters": 6}
CHANGES: dict[str, dict[str, Any]] = {
    "rates": {"lr": 1e-4, "min_lr": 1e-5},
    "schedule": {
        "lr_warmup_iters": 3, "lr_decay_iters": 8, "lr_decay_style": "linear", "clip_grad": 0.5, "train_iters": 9,
        "start_weight_decay": 0.1, "end_weight_decay": 0.3, "weight_decay_incr_style": "linear",
    },
    "batch size, betas and steps": {
        "global_batch_size": 4, "train_iters": 10, "adam_beta1": 0.8, "adam_beta2": 0.9, "adam_eps": 1e-6,
        "weight_decay": 0.3,
    },
}  # fmt: skip
SPY = """
import json, os
from torch.optim.optimizer import register_optimizer_step_pre_hook
def note(optimizer, args, kwargs):
    groups = [{k: group[k] for k in group if k not in ("params", "step")} for group in optimizer.param_groups]
    with open(os.environ["PRIMUS_RUN_DIR"] + "/used.jsonl", "a") as file:
        file.write(json.dumps(groups) + chr(10))
register_optimizer_step_pre_hook(note)
"""
"""Notes what each step of the optimizer uses, by its groups of parameters."""


def settings(**changes: Any) -> str:
    return tiny(**{**BEFORE, "save_interval": 2, **changes})


def used(run: Path) -> list[list[dict[str, Any]]]:
    return [json.loads(line) for line in (run / "used.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("changed", "distributed"), [*((name, False) for name in CHANGES), ("batch size, betas and steps", True)]
)
def test_a_continued_run_trains_as_one_that_began_with_its_settings(
    train: Train, tmp_path: Path, changed: str, distributed: bool
) -> None:
    kind = {"use_distributed_optimizer": distributed}
    train(settings(**kind), run="first")
    (tmp_path / "first/checkpoints/iter_0000006/.metadata").unlink()
    now = settings(**kind, **CHANGES[changed])
    continued, _ = train(now, run="continued", previous=saved(tmp_path / "first"), before=SPY)
    anew, _ = train(now, run="anew", before=SPY)
    assert [row["step"] for row in continued] == [row["step"] for row in anew][4:]
    assert [row["lr"] for row in continued] == [row["lr"] for row in anew][4:]
    assert used(tmp_path / "continued") == used(tmp_path / "anew")[4:]


def test_parameters_with_a_rate_of_their_own_keep_it(train: Train, tmp_path: Path) -> None:
    kind = {"use_distributed_optimizer": True}
    train(settings(**kind, decoupled_lr=2e-3, decoupled_min_lr=2e-4), run="first")
    (tmp_path / "first/checkpoints/iter_0000006/.metadata").unlink()
    now = settings(**kind, lr=1e-4, min_lr=1e-5, decoupled_lr=5e-5, decoupled_min_lr=5e-6)
    train(now, run="continued", previous=saved(tmp_path / "first"), before=SPY)
    train(now, run="anew", before=SPY)
    continued = used(tmp_path / "continued")
    assert continued == used(tmp_path / "anew")[4:]
    assert {group["max_lr"] for group in continued[0]} == {1e-4, 5e-5}


def test_an_optimizer_that_holds_other_settings_ends_the_run_after_its_first_step(train: Train, tmp_path: Path) -> None:
    """As it would be if Primus did not correct what Megatron loads."""
    train(settings(), run="first")
    (tmp_path / "first/checkpoints/iter_0000006/.metadata").unlink()
    now = settings(adam_beta2=0.9)
    _, log = train(
        now, run="continued", previous=saved(tmp_path / "first"), without="changed-hyperparameters", fails=True
    )
    assert "TrainingError: the optimizer does not use the settings of this run" in log
    assert "adam_beta1 and adam_beta2: (0.9, 0.9) set, (0.9, 0.999) used" in log
