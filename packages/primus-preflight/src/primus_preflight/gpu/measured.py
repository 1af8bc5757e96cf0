"""Measured checks of the GPUs: all are put under load at once, each by a process of its own (`load`).

A process that does not end is a result, too: what else is measured is not lost, and the next check comes.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from primus_machine.facts import Gpu
from primus_machine.files import plain_json
from primus_machine.gpus import state
from primus_machine.host import HostRoot
from primus_preflight.checks import processes
from primus_preflight.checks.check import Ask, Check, Node
from primus_preflight.checks.findings import Finding
from primus_preflight.checks.measuring import Once, needs_this_machine
from primus_preflight.checks.processes import Ended
from primus_preflight.checks.rule import Rule
from primus_preflight.checks.thresholds import packaged
from primus_preflight.gpu import links
from primus_preflight.gpu.links import needs_amd, needs_gpus, whole
from primus_preflight.machine import kfd
from primus_preflight.machine.files import GPU_FOLDER

__all__ = ["Load", "Result", "checks", "clock", "results", "speed"]

LIMIT_S = 180.0
"""Torch loads in seconds, or in a minute where all nodes load it from one file system; the load itself takes ten."""
_PROGRAM = (sys.executable, "-P", "-m", "primus_preflight.gpu.load")
_LASTING_S = (60.0, 120.0)
"""Warm-up and measurement of each stage: a cooler takes a minute to be as warm as it gets."""
_LASTING = (*_PROGRAM, "--seconds", *map(str, _LASTING_S))
_ENVIRON = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTORCH_TUNABLEOP_ENABLED": "0"}
"""CUDA counts the fastest first, unless it is told to count as the bus does; and torch may try kernels for minutes."""
_WRONG = 0.01
"""Rounding to bf16 makes a relative error of 0.0017."""
_FIX = "run it where the training runs: primus container --image IMAGE -- preflight --level perf; or install torch"


def checks() -> tuple[Check, ...]:
    """Those of the GPUs that measure."""
    load, lasting = Once(Load()), Once(Load(_LASTING, LIMIT_S + 2 * sum(_LASTING_S)))
    hwmon = f"{GPU_FOLDER}/*/hwmon/hwmon*"
    watched = (f"{hwmon}/freq1_input", f"{hwmon}/power1_*", f"{hwmon}/temp*_input", *kfd.READS)

    def check(name: str, summary: str, ask: Ask, reads: tuple[str, ...] = ()) -> Check:
        return Check(f"gpu.{name}", summary, reads, needs_this_machine(ask), packaged()[f"gpu.{name}"], "perf")

    return (
        check("gemm", "matrix multiplication is fast and correct", needs_gpus(speed(load.of, "gemm"))),
        check("memory-bandwidth", "memory bandwidth is high", needs_gpus(speed(load.of, "memory"))),
        *(
            Check(
                f"gpu.{name}-sustained",
                f"{name} lasts for minutes: power and cooling are sufficient",
                (),
                needs_this_machine(needs_gpus(speed(lasting.of, stage))),
                replace(packaged()[f"gpu.{name}"], check=f"gpu.{name}-sustained"),
                "full",
            )
            for name, stage in (("gemm", "gemm"), ("memory-bandwidth", "memory"))
        ),
        check("clock-under-load", "the clock stays up under load", needs_amd(clock(load.of)), watched),
    )


class Sample(NamedTuple):
    """What the driver says of a GPU at one moment."""

    time: float
    """CLOCK_MONOTONIC."""
    mhz: float
    watts: float | None
    celsius: float | None


class Result(NamedTuple):
    """What became of the load on one device."""

    gpu: Gpu
    stages: Mapping[str, Mapping[str, Any]]
    """What its process said, by stage."""
    cannot: str
    """Why it could not even try."""
    problem: str
    """What went wrong; empty: nothing."""
    samples: tuple[Sample, ...] = ()

    @property
    def subject(self) -> str:
        """Partitions share an address."""
        return self.gpu.pci_address + f" part {self.gpu.partition}" * (self.gpu.mode[:3] not in ("", "SPX"))

    def number(self, stage: str, name: str) -> float | None:
        """A number that its process said."""
        value = self.stages.get(stage, {}).get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


class Load:
    """Puts all GPUs of a node under load."""

    def __init__(self, program: Sequence[str] = _PROGRAM, limit_s: float = LIMIT_S) -> None:
        self._program, self._limit_s = program, limit_s

    def __call__(self, node: Node) -> list[Result]:
        gpus = node.gpus
        samples: dict[str, list[Sample]] = {gpu.pci_address: [] for gpu in gpus}

        def watch() -> None:
            for address, found in samples.items():
                if sample := _sample(node.host, address):
                    found.append(sample)

        parent = ("--parent", str(os.getpid()))
        words = [(*self._program, "--device", f"cuda:{index}", *parent) for index in range(len(gpus))]
        environ = {**node.facts.environ, **_ENVIRON}
        ended = processes.together(words, environ, self._limit_s, watch)
        return results(gpus, ended, {address: tuple(found) for address, found in samples.items()}, self._limit_s)


def results(
    gpus: Sequence[Gpu], ended: Sequence[Ended], samples: Mapping[str, tuple[Sample, ...]], limit_s: float
) -> list[Result]:
    """What the processes said, with what was seen meanwhile. Lines that are none of theirs are left out."""
    found = []
    texts = [list(_lines(one.out)) for one in ended]
    for gpu, one, lines in zip(_measured(gpus, texts), ended, texts, strict=True):
        cannot = next((str(line["cannot"]) for line in lines if "cannot" in line), "")
        problem = one.how.replace("in time", f"within {limit_s:g} s")
        stages = {str(line["stage"]): line for line in lines if "stage" in line}
        found.append(Result(gpu, stages, cannot, problem, samples.get(gpu.pci_address, ())))
    return found


def _measured(gpus: Sequence[Gpu], texts: Sequence[Sequence[Mapping[str, Any]]]) -> list[Gpu]:
    """Which GPU each process had, by the address that it said: a job may see some of them only, and count otherwise."""
    left, found = list(gpus), dict[int, Gpu]()
    for index, lines in enumerate(texts):
        address = next((line["address"] for line in lines if "address" in line), None)
        if gpu := next((one for one in left if one.pci_address == address), None):
            found[index] = gpu
            left.remove(gpu)
    return [found[index] if index in found else left.pop(0) for index in range(len(texts))]


def _lines(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        try:
            found = plain_json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found


def _sample(host: HostRoot, address: str) -> Sample | None:
    """None: the driver does not say the clock."""
    found = state.read(host, address)
    return None if found.mhz is None else Sample(time.monotonic(), found.mhz, found.watts, found.celsius)


def speed(load: Callable[[Node], list[Result]], stage: str) -> Ask:
    """The check of one stage of the load."""

    def ask(node: Node, rule: Rule) -> Iterator[Finding]:
        for one in load(node):
            yield _speed(_share(rule.of(one.gpu.model), one.gpu), one, stage)

    return ask


def _speed(rule: Rule, one: Result, stage: str) -> Finding:
    value, error = one.number(stage, "value"), one.number(stage, "error")
    if one.cannot or (value is None and "loaded" not in one.stages):
        why = one.cannot or f"torch did not load: {one.problem or 'its process printed nothing'}"
        return replace(rule.unknown(one.subject, why), fix=_FIX)
    if value is None:
        return rule.bad(one.subject, "no result", one.problem or "its process ended without a result")
    if error is not None and not error < _WRONG:  # nor is what is no number
        return rule.bad(one.subject, "a wrong result", f"relative error {error:.2g}, so its speed does not count")
    return rule.number(one.subject, value, measured=f"{value:.4g}")


def _share(rule: Rule, gpu: Gpu) -> Rule:
    """Of a partition or a die, its part of what the whole GPU should reach."""
    if rule.floor is None:
        return replace(rule, expected="compared with the other nodes only: the floor for this model is not known")
    return replace(rule, floor=rule.floor / gpu.partitions)


def clock(load: Callable[[Node], list[Result]]) -> Ask:
    """The check of the clock while matrices were multiplied."""

    def ask(node: Node, rule: Rule) -> Iterator[Finding]:
        found = load(node)
        devices = links.devices(node)
        highest = {one.address: one.properties.get("max_engine_clk_fcompute", 0) for one in devices}
        for gpu in whole(node.gpus):
            for one in [one for one in found if one.gpu.pci_address == gpu.pci_address][:1]:
                yield _clock(rule, gpu.pci_address, one, highest.get(gpu.pci_address, 0))

    return ask


def _clock(rule: Rule, address: str, one: Result, highest: int) -> Finding:
    began, ended = one.number("gemm", "began"), one.number("gemm", "ended")
    if began is None or ended is None:
        return rule.unknown(address, "there was no load on the GPU: see gpu.gemm")
    seen = [sample for sample in one.samples if began <= sample.time <= ended]
    if not seen or not highest:
        return rule.unknown(address, "hwmon/*/freq1_input or max_engine_clk_fcompute cannot be read")
    mhz = statistics.median(sample.mhz for sample in seen)
    watts = [sample.watts for sample in seen if sample.watts is not None]
    degrees = [sample.celsius for sample in seen if sample.celsius is not None]
    details = [f"{mhz:.0f} of {highest} MHz"]
    details += [f"{statistics.median(watts):.0f} W"] if watts else []
    details += [f"{max(degrees):.0f} °C"] if degrees else []
    return replace(
        rule.number(address, 100 * mhz / highest, measured=f"{100 * mhz / highest:.3g}"), why=", ".join(details)
    )
