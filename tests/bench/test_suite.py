"""`bench suite`: benchmarks that fit, one after the other, beside one that fails, one that hangs and one of a package."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import Run

from primus_bench.benchmarks.suite.parts import Part
from primus_bench.contract import SuiteMachine
from primus_bench.report import received
from primus_core.errors import PrimusError

pytestmark = pytest.mark.torch

BENCHMARKS = '''
"""Measure how dice roll."""
from primus_bench.contract import SuiteMachine, SuitePart
from primus_core.plan.plan import Requirement, Worker
from primus_core.plugins.contracts import TaskPlan


class Dice:
    epilog = ""

    def __init__(self, module, launcher="torchrun", requires=()):
        self.module, self.launcher, self.requires = module, launcher, requires

    def add_arguments(self, parser):
        parser.add_argument("--sides", type=int, default=6)

    def plan(self, call):
        place = call.place("output", "dice")
        return TaskPlan(place, Worker(self.module, (place.directory, str(call.args.sides)), self.launcher),
                        requires=self.requires)


class InSuite(Dice):
    def suite(self, machine, *, quick):
        if machine.device == "cuda":
            return SuitePart(skipped="dice are for CPUs")
        return SuitePart(("--sides", "20"))


DICE = InSuite("acme_dice.roll", "single")
WRONG = InSuite("acme_dice.wrong")
STUCK = InSuite("acme_dice.stuck")
LACKING = InSuite("acme_dice.roll", requires=(Requirement("module", "acme_lead", "pip install acme-lead"),))
PLAIN = Dice("acme_dice.roll")
NAN = InSuite("acme_dice.no_number", "single")
'''
ROLL = """
import json, os, sys
case = {"name": "rolls", "parameters": {"sides": int(sys.argv[2])}, "samples": [0.5] * 5, "median": 0.5, "unit": "rolls/s",
        "value": 2.0, "verified": True, "error": None, "derived": {}, "rank": 0, "node": "here"}
assert os.environ["WORLD_SIZE"] == "1"
found = {"schema": 3, "benchmark": "acme", "parameters": {}, "machine": {}, "device": {"kind": "cpu", "name": "dice"},
         "clocks": {}, "versions": {}, "method": {}, "cases": [case], "notes": []}
with open(sys.argv[1] + "/acme.json", "w") as file:
    json.dump(found, file)
"""
NO_NUMBER = """
import sys
with open(sys.argv[1] + "/acme_nan.json", "w") as file:
    file.write('{"schema": 3, "benchmark": "acme_nan", "device": null, "cases": [{"median": NaN}]}')
"""
WRONG = """
import os, sys, time
from primus_core.errors import PrimusError
if os.environ["RANK"] == "1":
    raise PrimusError("dice have a wrong result", why="a seven")
time.sleep(600)  # it waits for the others
"""
NAMES = {
    "acme": "DICE",
    "acme_lacking": "LACKING",
    "acme_nan": "NAN",
    "acme_plain": "PLAIN",
    "acme_stuck": "STUCK",
    "acme_wrong": "WRONG",
}


@pytest.fixture
def acme(tmp_path: Path) -> dict[str, str]:
    """The environment with a package of benchmarks."""
    package, about = tmp_path / "site/acme_dice", tmp_path / "site/acme_dice-2.0.dist-info"
    for folder in (package, about):
        folder.mkdir(parents=True)
    files = {
        "__init__": BENCHMARKS,
        "roll": ROLL,
        "wrong": WRONG,
        "no_number": NO_NUMBER,
        "stuck": "import time; time.sleep(600)\n",
    }
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-dice\nVersion: 2.0\n")
    entries = "\n".join(f"{name} = acme_dice:{attribute}" for name, attribute in NAMES.items())
    (about / "entry_points.txt").write_text(f"[primus.benchmarks]\n{entries}\n")
    return {"PYTHONPATH": str(tmp_path / "site")}


def test_a_failure_hides_nothing_and_every_result_can_be_compared(
    primus: Run, acme: dict[str, str], tmp_path: Path
) -> None:
    chosen = [word for name in (*NAMES, "memory", "comm") for word in ("--only", name)]
    words = ("--quick", "--device", "cpu", *chosen, "--skip", "acme_stuck", "--output", "r.md", "--output", "r.csv")
    done = primus("direct", "--", "bench", "suite", *words, env={**acme, "GPUS_PER_NODE": "2"}, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    run = tmp_path / "output/bench-suite"
    found = json.loads((run / "suite.json").read_text())
    parts = {one["name"]: one for one in found["parameters"]["parts"]}
    outcomes = {name: one["outcome"] for name, one in parts.items()}
    assert outcomes == {
        "acme": "passed", "comm": "passed", "memory": "passed", "acme_wrong": "failed", "acme_nan": "failed", "acme_stuck": "skipped",
        "acme_lacking": "skipped", "acme_plain": "skipped",
    }  # fmt: skip
    assert "the result has 'device' None: it does not have the form of all benchmarks" in parts["acme_nan"]["why"]
    assert "rank 1" in parts["acme_wrong"]["why"]
    assert "a seven" in parts["acme_wrong"]["why"]
    assert "pip install acme-lead" in parts["acme_lacking"]["why"]
    assert "takes no part in suites" in parts["acme_plain"]["why"]
    cases = {case["name"]: case for case in found["cases"]}
    assert cases["acme: rolls"]["parameters"] == {"benchmark": "acme", "sides": 20}
    assert (cases["acme_wrong"]["verified"], cases["acme_wrong"]["value"], cases["acme_wrong"]["samples"]) == (
        False,
        None,
        [],
    )
    own = json.loads((run / "memory.json").read_text())["cases"]
    assert [case["value"] for case in own] == [cases[f"memory: {name}"]["value"] for name in ("copy", "triad")]
    assert any(name.startswith("comm: all_reduce") for name in cases)
    assert "2 of 5 benchmarks failed" in done.stderr
    assert "acme_wrong failed" in (tmp_path / "r.md").read_text()
    with (tmp_path / "r.csv").open() as file:
        assert {row["benchmark"]: row["outcome"] for row in csv.DictReader(file)} == outcomes
    same = primus("bench", "compare", str(run / "suite.json"), str(run / "suite.json"), "--json", cwd=tmp_path)
    assert {row["outcome"] for row in json.loads(same.stdout)["cases"]} >= {"equal", "wrong"}
    history = json.loads(primus("bench", "history", "--json", cwd=tmp_path).stdout)["series"]
    assert {one[0]["benchmark"] for one in history} == {"acme", "comm", "memory"}


@pytest.mark.full
def test_a_benchmark_that_hangs_is_ended_and_the_suite_goes_on(
    primus: Run, acme: dict[str, str], tmp_path: Path
) -> None:
    words = ("--quick", "--device", "cpu", "--only", "acme_stuck", "--only", "acme", "--timeout", "2", "--json")
    done = primus("direct", "--", "bench", "suite", *words, env=acme, cwd=tmp_path)
    assert done.returncode == 124, done.stderr
    parts = {one["name"]: one["outcome"] for one in json.loads(done.stdout)["parameters"]["parts"]}
    assert parts == {"acme": "passed", "acme_stuck": "failed"}
    assert "it took too long (--timeout)" in done.stderr


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_suite_that_is_stopped_reports_what_it_has_measured(
    acme: dict[str, str], clean_environ: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    words = ("--quick", "--device", "cpu", "--only", "acme", "--only", "acme_stuck", "--output", "r.json")
    command = [sys.executable, "-m", "primus_core", "direct", "--single", "--", "bench", "suite", *words]
    process = subprocess.Popen(command, env={**clean_environ, **acme}, cwd=tmp_path, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    assert process.stdout
    assert any("acme_stuck is running" in line for line in process.stdout)
    process.send_signal(number)
    said = process.communicate()[0]
    assert process.returncode == 128 + number, said
    found = json.loads((tmp_path / "r.json").read_text())
    assert {one["name"]: one["outcome"] for one in found["parameters"]["parts"]} == {
        "acme": "passed", "acme_stuck": "skipped",
    }  # fmt: skip
    assert "the suite was stopped before it ended" in said


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"value": -1.0}, "rolls has 'value' -1.0"),
        ({"samples": [float("inf")]}, "rolls has 'samples.0' inf\n  why: each is a finite number of seconds above 0"),
        ({"median": "fast"}, "rolls has 'median' 'fast'"),
        (
            {"verified": False, "error": "a seven"},
            "rolls has a wrong result; its speed is not reported\n  why: a seven",
        ),
        ({"verified": 1}, "rolls has 'verified' 1\n  why: it is True or False"),
        ({"verified": "false"}, "rolls has 'verified' 'false'"),
        ({"name": None}, "the result has 'cases.0.name' None"),
        ({"rank": None}, "rolls has 'rank' None\n  why: it does not have the form of all benchmarks"),
    ],
)
def test_a_result_of_another_package_is_believed_only_in_the_common_form(
    tmp_path: Path, changed: dict[str, object], said: str
) -> None:
    case = {"name": "rolls", "parameters": {}, "samples": [0.5], "median": 0.5, "unit": "rolls/s", "value": 2.0,
            "verified": True, "error": None, "derived": {}, "rank": 0, "node": "here", **changed}  # fmt: skip
    found = {"schema": 3, "benchmark": "acme", "device": {}, "cases": [case], "notes": []}
    (tmp_path / "acme.json").write_text(json.dumps(found))
    with pytest.raises(PrimusError) as refused:
        received.read(str(tmp_path / "acme.json"))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--only", "gem"), "did you mean 'gemm'?"),
        (("--only", "nope"), "choose one of attention, comm, gemm, io, memory, train\n"),
        (("--skip", "atention"), "did you mean 'attention'?"),
        (("--only", "comm"), "one rank sends nothing to anybody"),
        (("--device", "tpu"), "'cpu', 'cuda'"),
        (("--timeout", "0"), "greater than 0"),
        (("--output", "suite.txt"), ".md, .csv"),
    ],
)
def test_what_cannot_be_run_is_refused_with_what_can(
    primus: Run, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = primus("direct", "--dry-run", "--", "bench", "suite", *words, env={"GPUS_PER_NODE": "1"}, cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    assert said in done.stderr


def test_what_is_skipped_is_known_before_it_starts(primus: Run, acme: dict[str, str], tmp_path: Path) -> None:
    done = primus("direct", "--dry-run", "--", "bench", "suite", "--device", "cuda", env=acme, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "acme is skipped: dice are for CPUs" in done.stdout + done.stderr


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", ["attention", "comm", "gemm", "io", "memory", "train"])
def test_the_part_of_each_benchmark_can_be_planned(name: str, quick: bool, device: str) -> None:
    from tests.bench.test_task import A_GPU, planned

    from primus_bench.contract import GROUP
    from primus_core.installed import joined

    dtypes = frozenset({"bf16", "fp8"} if device == "cuda" else ())
    part = joined.load(GROUP, name).suite(
        SuiteMachine(device, 8, 1, dtypes, lambda _: True, lambda _: True), quick=quick
    )
    plan = planned(name, *part.words, gpus=(A_GPU,) * (device == "cuda"))
    assert plan.worker.args


def test_a_part_is_read_as_it_was_written() -> None:
    one = Part("gemm", "primus_bench.x", ("--shape", 'a "b" c'), True, "")
    assert Part.of_word(one.word()) == one


def test_what_is_missing_on_a_login_node_is_not_missing_on_the_nodes(primus: Run, tmp_path: Path) -> None:
    words = ("slurm", "sbatch", "--dry-run", "-N", "1", "--", "bench", "suite", "--only", "comm")
    done = primus(*words, env={"GPUS_PER_NODE": "1"}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "is skipped" not in done.stdout + done.stderr
