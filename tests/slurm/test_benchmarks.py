"""A benchmark between the nodes of a real cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.conftest import Run


def test_collectives_are_measured_inside_each_node_and_between_two(
    primus: Run, on_cluster: dict[str, str], tmp_path: Path
) -> None:
    scopes = ("job", "intra-node", "inter-node")
    words = ("--device", "cpu", "--op", "all_reduce", "--op", "send_recv", "--sizes", "64KiB", "--iterations", "3")
    asked = [word for scope in scopes for word in ("--scope", scope)]
    done = primus("slurm", "srun", "-N", "2", "--", "bench", "comm", *words, *asked,
                  env={**on_cluster, "GPUS_PER_NODE": "2"}, cwd=tmp_path, timeout=240)  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "output/bench-comm/comm.json").read_text())
    assert len(found["machine"]["nodes"]) == 2
    assert found["machine"]["ranks"] == 4
    ranks = {case["parameters"]["scope"]: case["parameters"]["ranks"] for case in found["cases"]}
    assert ranks == {"job": 4, "intra-node": 2, "inter-node": 2}
    assert all(case["verified"] and case["value"] > 0 for case in found["cases"])
    assert {case["node"] for case in found["cases"]} <= set(found["machine"]["nodes"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("memory", "--device cpu --size 1MiB --duration 0.1"),
        ("io", "--dir store --size 1MiB --block 64KiB --files 10 --repeat 1 --seq-len 512"),
        ("attention", "--device cpu --seq 32 --heads 2 --duration 0.1 --backend flash"),
        ("train", "--device cpu --model qwen2.5_0.5B --seq-len 16 --duration 0.1"),
    ],
)
def test_memory_storage_attention_and_training_are_measured_on_two_nodes(
    primus: Run, on_cluster: dict[str, str], tmp_path: Path, name: str, words: str
) -> None:
    done = primus("slurm", "srun", "-N", "2", "--", "bench", name, *words.split(),
                  env={**on_cluster, "GPUS_PER_NODE": "1"}, cwd=tmp_path, timeout=240)  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / f"output/bench-{name}/{name}.json").read_text())
    assert len(found["machine"]["nodes"]) == 2
    assert all(case["verified"] and case["value"] > 0 for case in found["cases"])
    assert {case["parameters"]["ranks"] for case in found["cases"]} == ({1, 2} if name == "io" else {2})
    assert name != "io" or list((tmp_path / "store").iterdir()) == []


def test_gemm_is_measured_on_every_device_of_two_nodes_and_the_slowest_is_named(
    primus: Run, on_cluster: dict[str, str], tmp_path: Path
) -> None:
    words = ("-M", "48,64", "-N", "32", "--device", "cpu", "--dtype", "fp32", "--duration", "0.1")
    done = primus("slurm", "srun", "-N", "2", "--", "bench", "gemm", *words,
                  env={**on_cluster, "GPUS_PER_NODE": "2"}, cwd=tmp_path, timeout=240)  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "output/bench-gemm/gemm.json").read_text())
    assert len(found["machine"]["nodes"]) == 2
    for case in found["cases"]:
        speeds = case["derived"]["tflops_of_ranks"]
        assert (len(speeds), case["value"]) == (4, min(speeds))
        assert case["node"] == found["machine"]["hosts"][case["rank"]]
    assert done.stdout.count("slowest") == 2, "the heading, and one rank"


def test_a_suite_measures_two_nodes_one_benchmark_after_the_other(
    primus: Run, on_cluster: dict[str, str], tmp_path: Path
) -> None:
    words = ("--quick", "--device", "cpu", "--only", "comm", "--only", "memory", "--output", "suite.md")
    done = primus("slurm", "srun", "-N", "2", "--", "bench", "suite", *words,
                  env={**on_cluster, "GPUS_PER_NODE": "1"}, cwd=tmp_path, timeout=240)  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "output/bench-suite/suite.json").read_text())
    assert {one["name"]: one["outcome"] for one in found["parameters"]["parts"] if one["outcome"] != "skipped"} == {
        "comm": "passed", "memory": "passed"
    }  # fmt: skip
    assert len(found["machine"]["nodes"]) == 2
    assert {case["parameters"].get("scope") for case in found["cases"]} == {"job", "inter-node", None}
    assert "inter-node" in (tmp_path / "suite.md").read_text()
