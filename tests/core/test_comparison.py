"""What changed between two runs, and how much it matters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.run_directories import COMMIT, make, plan_of

from primus_core.journal.record import RunRecord
from primus_core.runs.comparison import SEVERITY, Difference, compare, severity
from primus_core.runs.saved import Saved, load
from primus_core.runs.settings import dotted, flatten

Pair = Callable[..., tuple[Saved, Saved]]


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """`pair(before, after)`: two whole runs, made with these parts."""

    def two(before: dict[str, Any] | None = None, after: dict[str, Any] | None = None) -> tuple[Saved, Saved]:
        a = make(tmp_path / "workspace", "small_2026_11_21_101526", **(before or {}))
        b = make(tmp_path / "elsewhere", "small_2026_11_22_000000_2", **(after or {}))
        return load(str(a)), load(str(b))

    return two


def settings(directory: str, lr: object) -> dict[str, Any]:
    """What a framework got: paths into the run, an optimizer in a list."""
    groups = [{"optimizer_kwargs": {"betas": [0.9, 0.95], "lr": lr}}]
    return {"settings": {"dump_folder": directory, "optimizer.param_groups": groups}, "gpus": 8}


def test_two_runs_that_differ_in_three_things_give_three_rows(pair: Pair) -> None:
    a, b = pair(
        {"backend": {"settings": {"optimizer.lr": 0.004}}},
        {
            "backend": {"settings": {"optimizer.lr": 0.008}},
            "environ": {"NCCL_DEBUG": "INFO"},
            "packages": {"torch": "2.10.0"},
        },
    )
    assert compare(a, b) == [
        Difference("config", "settings.optimizer.lr", "0.004", "0.008"),
        Difference("environment", "NCCL_DEBUG", "", "INFO"),
        Difference("packages", "torch", "2.9.0", "2.10.0"),
    ]


def test_the_same_run_twice_differs_in_nothing(pair: Pair) -> None:
    a, b = pair()
    assert a.environment["PRIMUS_METRICS_FILE"] != b.environment["PRIMUS_METRICS_FILE"]
    assert a.configs["backend_config"] != b.configs["backend_config"]
    assert compare(a, b) == []


def test_a_value_in_a_list_of_groups_is_named_by_its_place(pair: Pair, tmp_path: Path) -> None:
    first, second = (tmp_path / "workspace/small_2026_11_21_101526", tmp_path / "elsewhere/small_2026_11_22_000000_2")
    a, b = pair({"backend": settings(f"{first}/data", 0.1)}, {"backend": settings(f"{second}/data", 0.2)})
    [row] = compare(a, b)
    assert row[1:] == ("settings.optimizer.param_groups[0].optimizer_kwargs.lr", "0.1", "0.2")


def test_a_path_into_another_run_with_a_longer_name_is_not_the_runs_own(pair: Pair, tmp_path: Path) -> None:
    own = tmp_path / "workspace/small_2026_11_21_101526"
    a, b = pair(
        {"environ": {"HF_HOME": f"{own}/cache:{own}_2/cache:x{own.name}"}}, {"environ": {"HF_HOME": "elsewhere"}}
    )
    [row] = compare(a, b)
    assert row.before == f"<run>/cache:{own}_2/cache:x{own.name}"


def test_the_runs_id_is_no_difference_wherever_it_stands(pair: Pair) -> None:
    a, b = pair(
        {"environ": {"WANDB_NAME": "ada-small_2026_11_21_101526"}, "backend": {"name": "small_2026_11_21_101526"}},
        {"environ": {"WANDB_NAME": "ada-small_2026_11_22_000000_2"}, "backend": {"name": "small_2026_11_22_000000_2"}},
    )
    assert [row.name for row in compare(a, b)] == []


def test_a_run_that_was_moved_is_compared_by_where_it_was(pair: Pair, tmp_path: Path) -> None:
    a, b = pair()
    moved = Path(a.directory).rename(tmp_path / "archive")
    assert compare(load(str(moved)), b) == []


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (1, 1.0, None),
        (float("nan"), float("nan"), None),
        (1, True, ("1", "true")),
        ("1", 1, ('"1"', "1")),
        (None, "null", ("null", '"null"')),
        ([], {}, ("[]", "{}")),
        ([0.9, 0.95], [0.9, 0.99], ("[0.9, 0.95]", "[0.9, 0.99]")),
        ("", "a", ("", "a")),
    ],
)
def test_values_are_compared_as_settings_and_shown_apart(
    pair: Pair, before: object, after: object, shown: tuple[str, str] | None
) -> None:
    rows = compare(*pair({"backend": {"x": before}}, {"backend": {"x": after}}))
    assert [(row.before, row.after) for row in rows] == ([shown] if shown else [])


def test_a_setting_that_only_one_run_has_is_empty_in_the_other(pair: Pair) -> None:
    rows = compare(*pair({"backend": {"a": 1}}, {"backend": {"b": None}}))
    assert [row[1:] for row in rows] == [("a", "1", ""), ("b", "", "null")]


def test_another_model_runtime_or_number_of_gpus_is_one_row_each(pair: Pair) -> None:
    placed = {"nnodes": 2, "node_rank": 0, "gpus_per_node": 4, "master_port": 29500}
    after = {
        "plan": {"model": "llama3.1_70B", "runtime": "slurm", "distributed": placed},
        "environ": {"GPUS_PER_NODE": "4", "NNODES": "2", "MASTER_PORT": "29500"},
    }
    assert [row[1:] for row in compare(*pair(None, after))] == [
        ("runtime", "direct", "slurm"),
        ("model", "llama3.1_8B", "llama3.1_70B"),
        ("nnodes", "1", "2"),
        ("gpus_per_node", "8", "4"),
    ]


def test_where_ranks_cannot_be_divided_over_the_nodes_their_number_differs(pair: Pair) -> None:
    before = {"plan": {"distributed": {"nnodes": 1, "gpus_per_node": 1}}}
    rows = compare(*pair(before, {"plan": {"distributed": {"nnodes": 2, "gpus_per_node": 1}}}))
    assert [row[1:] for row in rows] == [("nnodes", "1", "2"), ("ranks", "1", "2")]


def test_between_runtimes_only_the_environment_that_belongs_to_the_run_counts(pair: Pair) -> None:
    own = {"NCCL_DEBUG": "INFO", "OF_PLAN": "1"}
    before = {"environ": {**own, "EDITOR_OF_MINE": "x", "CUDA_HOME": "/cuda"}}
    after = {
        "environ": {**own, "NCCL_DEBUG": "WARN", "container": "podman"},
        "metadata": {"runtime": "container"},
        "plan": {"place": {"outer": "container"}, "environment": [{"name": "OF_PLAN", "value": "1"}]},
    }
    rows = [row[1:] for row in compare(*pair(before, after))]
    assert rows == [("runtime", "direct", "container"), ("NCCL_DEBUG", "INFO", "WARN")]


@pytest.mark.parametrize("origin", ["network", "user"])
def test_where_another_runtime_finds_its_nodes_is_no_difference(pair: Pair, origin: str) -> None:
    def placed(interface: str, host: str, chosen_by: str, outer: str) -> dict[str, Any]:
        variable = {"name": "GLOO_SOCKET_IFNAME", "value": interface, "origin": chosen_by}
        return {
            "environ": {"GLOO_SOCKET_IFNAME": interface, "SLURM_NODEID": "0"},
            "metadata": {"runtime": "slurm"},
            "plan": {"place": {"outer": outer}, "environment": [variable]},
            "system": {"host": host},
        }

    before, after = placed("eth0", "node1", "network", "slurm"), placed("eth1", "node2", origin, "container")
    chosen = [("GLOO_SOCKET_IFNAME", "eth0", "eth1")] if origin == "user" else []
    assert [row[1:] for row in compare(*pair(before, after))] == [("runtime", "slurm", "slurm container"), *chosen]


def test_another_image_is_a_difference(pair: Pair) -> None:
    rows = compare(*pair(*({"environ": {"PRIMUS_IMAGE": f"rocm/primus:{tag}"}} for tag in ("1", "2"))))
    assert rows == [Difference("config", "image", "rocm/primus:1", "rocm/primus:2")]


def test_what_only_an_image_or_only_a_host_sets_is_no_difference_between_them(pair: Pair) -> None:
    inside = {"PRIMUS_IMAGE": "rocm/primus:1", "CONDA": "of the image", "NCCL_DEBUG": "INFO"}
    [row] = compare(*pair({"environ": inside}, {"environ": {"SSL_CERT_FILE": "of the host"}}))
    assert row == Difference("environment", "NCCL_DEBUG", "INFO", "")


def bench(directory: str, *words: str, worker: bool = True) -> dict[str, Any]:
    """A run without a framework; `worker=False`: of a plan that names only processes."""
    output = f"{directory}/gemm.json"
    args = ["-M", "256", "--dtype", "bf16", "--output", output, *words]
    step = {"name": "worker", "kind": "worker", "argv": ["python", "-m", "bench", "--master-port", words[-1], *args]}
    prepare = {"name": "prepare", "kind": "prepare", "argv": ["/usr/bin/python3", "-m", "prepare", "--out", output]}
    plan = {
        "worker": {"module": "bench", "args": args, "launcher": "single"} if worker else None,
        "steps": [prepare, step],
    }
    return {"train": False, "plan": {"task": "bench", "framework": "", "model": "", **plan}}


@pytest.mark.parametrize("worker", [True, False])
def test_runs_without_a_framework_are_compared_by_their_arguments(pair: Pair, tmp_path: Path, worker: bool) -> None:
    first, second = (tmp_path / "workspace/small_2026_11_21_101526", tmp_path / "elsewhere/small_2026_11_22_000000_2")
    assert compare(*pair(bench(str(first), "1", worker=worker), bench(str(second), "1", worker=worker))) == []
    for path in (first, second):
        path.rename(path.parent / "done")
    a, b = pair(
        bench(str(first), "--beta=-1", "--seed", "-3", "1", worker=worker),
        bench(str(second), "--beta=-2", "--check", "--seed", "-3", "1", worker=worker),
    )
    end = {True: "", False: "worker."}[worker]
    assert [row[1:] for row in compare(a, b)] == [(f"{end}--beta", "-1", "-2"), (f"{end}--check", "", "true")]


def test_settings_given_as_words_are_compared_by_name(pair: Pair) -> None:
    workers = [{"module": "x", "args": ["fast", f"lr={lr}", "--", "b=1"], "launcher": "single"} for lr in (1, 2)]
    rows = compare(*pair(*({"train": False, "plan": {"worker": worker}} for worker in workers)))
    assert [row[1:] for row in rows] == [("lr", "1", "2")]


def test_the_text_of_a_hook_or_patch_counts(pair: Pair) -> None:
    path = "config/hooks/train/pretrain/01_data.sh"
    [row] = compare(*pair({"files": {path: "echo a\n"}}, {"files": {path: "echo b\n"}}))
    assert (row.category, row.name) == ("config", "hooks/train/pretrain/01_data.sh")
    assert len(row.before) == len(row.after) == 12


def test_what_says_only_who_and_where_is_no_difference(pair: Pair) -> None:
    rows = compare(*pair({"environ": {"SSH_TTY": "/dev/pts/1", "USER": "ada"}}, {"environ": {"NODE_RANK": "7"}}))
    assert rows == []


def test_code_differs_in_commit_and_in_uncommitted_changes(pair: Pair) -> None:
    patch = "".join(f"diff --git a/{n}.py b/{n}.py\n+x\n" for n in "abcde")
    code = {
        "commit": "f" * 40,
        "dirty": True,
        "patch_sha256": "12" * 32,
        "omitted": [{"path": "data.bin", "why": "big"}],
    }
    rows = compare(*pair(None, {"code": code, "patch": patch}))
    assert rows == [
        Difference("code", "commit", COMMIT, "f" * 40),
        Difference("code", "uncommitted changes", "none", "121212121212 a.py, b.py, c.py, 3 more"),
    ]


def test_changes_that_were_only_named_are_shown_by_name(pair: Pair) -> None:
    [row] = compare(*pair(None, {"code": {"dirty": True, "omitted": [{"path": "data.bin", "why": "big"}]}}))
    assert row.after == "data.bin (left out)"


def test_a_run_outside_of_a_repository_has_no_commit(pair: Pair) -> None:
    none = {"root": "", "commit": "", "dirty": False}
    assert compare(*pair({"code": none}, {"code": none})) == []


def test_each_piece_of_hardware_is_a_row(pair: Pair) -> None:
    here: dict[str, Any] = {
        "gpu_model": None,
        "physical_gpus": 0,
        "gpus": [],
        "driver": "",
        "rocm": "",
        "host": "laptop",
        "kernel": "6.9",
    }
    assert [row[1:] for row in compare(*pair(None, {"system": here}))] == [
        ("gpu_model", "MI300X", "none"),
        ("physical_gpus", "8", "0"),
        ("driver", "6.12.12", "none"),
        ("rocm", "6.4.1", "none"),
        ("kernel", "6.8.0", "6.9"),
        ("host", "node1", "laptop"),
    ]


def test_nothing_here_and_nothing_there_are_equal_however_they_are_written(pair: Pair) -> None:
    systems = [{"gpu_model": None, "rocm": "", "driver": "none"}, {"gpu_model": "none", "rocm": None, "driver": ""}]
    assert compare(*pair(*({"system": system} for system in systems))) == []


def test_gpus_in_parts_are_other_devices(pair: Pair) -> None:
    a, b = pair(None, {"system": {"gpus": [{"gpu": n // 8} for n in range(64)]}})
    assert [row[1:] for row in compare(a, b)] == [("devices", "8", "64")]


def severities(a: Saved, b: Saved) -> dict[str, str]:
    """By name, of all that differs."""
    return {row.name: severity(row, a, b) for row in compare(a, b)}


def gpus(count: int, model: str | None = "MI300X") -> dict[str, Any]:
    """A machine with so many."""
    return {"system": {"gpu_model": model, "physical_gpus": count, "gpus": [{"gpu": n} for n in range(count)]}}


@pytest.mark.parametrize(
    ("before", "after", "needs", "expected"),
    [
        (gpus(8), gpus(4), 8, {"physical_gpus": "blocking"}),
        (gpus(8), gpus(4), 4, {"physical_gpus": "note"}),
        (gpus(8), gpus(16), 8, {"physical_gpus": "note"}),
        (gpus(8), gpus(8, "MI325X"), 8, {"gpu_model": "blocking"}),
        (gpus(8), gpus(0, None), 8, {"gpu_model": "blocking", "physical_gpus": "blocking"}),
        (gpus(0, None), gpus(8), 2, {"gpu_model": "note", "physical_gpus": "note"}),
        (gpus(0, None), gpus(0, None), 2, {}),
    ],
)
def test_a_replay_needs_the_model_and_enough_devices(
    pair: Pair, before: dict[str, Any], after: dict[str, Any], needs: int, expected: dict[str, str]
) -> None:
    plan = {"distributed": {"nnodes": 1, "gpus_per_node": needs}}
    assert severities(*pair({**before, "plan": plan}, {**after, "plan": plan})) == expected


def test_every_other_difference_has_its_weight(pair: Pair) -> None:
    after = {
        "system": {
            "driver": "7",
            "rocm": "7.1",
            "cuda": "13",
            "kernel": "7",
            "cpu_model": "x",
            "cpu_count": 1,
            "host": "b",
        },
        "packages": {"torch": "3"},
        "environ": {"NCCL_DEBUG": "INFO"},
        "code": {"commit": "f" * 40},
        "backend": {"stage": "sft"},
    }
    warnings, notes = (
        ("driver", "rocm", "cuda", "torch", "commit", "stage"),
        ("kernel", "cpu_model", "cpu_count", "host"),
    )
    expected = {**dict.fromkeys(warnings, "warning"), **dict.fromkeys((*notes, "NCCL_DEBUG"), "note")}
    assert severities(*pair(None, after)) == expected
    assert set(SEVERITY.values()) == {"blocking", "warning", "note"}


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
TREES = st.recursive(
    SCALARS,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=3), below, max_size=3),
    max_leaves=10,
)


def put_together(leaves: dict[tuple[str | int, ...], Any]) -> Any:
    """The inverse of `flatten`."""
    if () in leaves:
        return leaves[()]
    parts: dict[str | int, dict[tuple[str | int, ...], Any]] = {}
    for path, value in leaves.items():
        parts.setdefault(path[0], {})[path[1:]] = value
    below = {key: put_together(part) for key, part in parts.items()}
    return list(below.values()) if all(isinstance(key, int) for key in below) else below


@given(TREES)
def test_flat_settings_lose_nothing(tree: Any) -> None:
    assert put_together(flatten(tree)) == tree


def test_flat_names_read_as_one_would_write_them() -> None:
    flat = flatten({"a.b": {"c": [{"d": 1}, 2]}, "e": [1, 2], "f": {}})
    assert {dotted(path): value for path, value in flat.items()} == {
        "a.b.c[0].d": 1,
        "a.b.c[1]": 2,
        "e": [1, 2],
        "f": {},
    }


@given(TREES, TREES)
def test_only_what_differs_is_a_row(one: Any, two: Any) -> None:
    a, b = (
        Saved("/r", RunRecord(), plan_of(Path("/r/x")), {}, {}, {}, {}, {"backend_config": {"x": tree}})
        for tree in (one, two)
    )
    assert compare(a, a) == []
    assert all(row.before != row.after for row in compare(a, b))
    assert len(compare(a, b)) == len(compare(b, a))
