"""What all backends have words for, and runs of different frameworks compared by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.core.run_directories import make

from primus_core.runs.saved import Saved, load
from primus_runs.comparison import agreed, compare
from primus_train.kit.hyperparameters import NAMES, Hyperparameters
from primus_train.models import catalogue
from primus_train.models.arithmetic import parameters


@pytest.mark.parametrize("name", ["llama3.1_8B", "mixtral_8x7B"])
def test_a_model_is_said_with_its_number_of_parameters(name: str) -> None:
    facts = catalogue.load()[name].facts
    said = Hyperparameters(model=facts, lr=1e-3).to_dict()
    assert said["parameters"] == parameters(facts).total
    assert (said["hidden_size"], said["lr"], said["seq_length"]) == (4096, 1e-3, None)
    assert said.get("num_experts") == (facts.moe.num_experts if facts.moe else None)
    assert set(said) <= set(NAMES)


def test_without_a_model_the_rest_is_said() -> None:
    said = Hyperparameters(steps=7).to_dict()
    assert (said["parameters"], said["steps"]) == (None, 7)


def test_what_was_multiplied_is_what_was_written() -> None:
    assert Hyperparameters(min_lr=0.003 * 0.1).to_dict()["min_lr"] == 3e-4


def run(folder: Path, framework: str, **parts: Any) -> Saved:
    """A run of a framework; `said`: its hyperparameters."""
    said, variables = parts.pop("said", None), parts.pop("variables", {})
    environment = [{"name": name, "value": value, "origin": framework} for name, value in variables.items()]
    backend = {"settings": {f"{framework}.lr": 0.1}, **({"hyperparameters": said} if said else {})}
    plan = {"framework": framework, "environment": environment}
    return load(str(make(folder / framework, backend=backend, plan=plan, environ=variables, **parts)))


def test_runs_of_two_frameworks_are_compared_in_the_words_that_both_have(tmp_path: Path) -> None:
    a = run(tmp_path, "megatron", said={"lr": 0.1, "seed": 1, "beta1": None, "steps": 5, "parameters": 9})
    b = run(tmp_path, "torchtitan", said={"lr": 0.2, "beta1": 0.9, "steps": 5.0, "parameters": 9})
    assert [row[1:] for row in compare(a, b)] == [
        ("framework", "megatron", "torchtitan"),
        ("lr", "0.1", "0.2"),
    ]
    assert agreed(a, b) == {"parameters": 9, "steps": 5}


def test_what_only_one_framework_asks_for_is_no_difference(tmp_path: Path) -> None:
    a = run(tmp_path, "megatron", variables={"CUDA_QUEUES": "1", "OMP_NUM_THREADS": "4"}, packages={"wandb": "1"})
    b = run(tmp_path, "torchtitan", variables={"OMP_NUM_THREADS": "8"}, packages={"torch": "3", "datasets": "2"})
    assert [row[1:] for row in compare(a, b)] == [
        ("framework", "megatron", "torchtitan"),
        ("OMP_NUM_THREADS", "4", "8"),
        ("torch", "2.9.0", "3"),
    ]


def test_a_variable_that_a_person_set_for_one_of_them_is_a_difference(tmp_path: Path) -> None:
    a, b = run(tmp_path, "megatron", variables={}), run(tmp_path, "torchtitan")
    a.environment["NCCL_DEBUG"] = "INFO"
    assert ("NCCL_DEBUG", "INFO", "") in [row[1:] for row in compare(a, b)]


def test_with_one_framework_its_own_settings_say_it_and_nothing_is_said_twice(tmp_path: Path) -> None:
    a, b = (run(tmp_path / folder, "megatron", said={"lr": lr}) for folder, lr in (("a", 0.1), ("b", 0.2)))
    b.configs["backend_config"]["settings"]["megatron.lr"] = 0.2
    assert [row[1:] for row in compare(a, b)] == [("settings.megatron.lr", "0.1", "0.2")]
    assert agreed(a, b) == {}


@pytest.mark.parametrize("said", [None, [], "x", {"lr": None}])
def test_a_backend_that_says_nothing_is_compared_by_the_framework_alone(tmp_path: Path, said: Any) -> None:
    a, b = run(tmp_path, "megatron", said={"lr": 0.1}), run(tmp_path, "torchtitan", said=said)
    assert [row.name for row in compare(a, b)] == ["framework"]
    assert agreed(a, b) == {}
