"""All-reduce among the GPUs of a node, and among all nodes: over RCCL or NCCL, and on CPUs over gloo.

Each rank is a process of its own under a time limit (`all_reduce`). A collective that fails says nothing of who is
at fault: what was measured between two nodes does, and where it does, the others are excused (`isolation`).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from primus_machine.facts import Facts
from primus_machine.files import plain_json
from primus_machine.files.atomic import regular, write_atomically
from primus_machine.gpus.visible import visible
from primus_preflight.checks import processes
from primus_preflight.checks.check import Check, Node
from primus_preflight.checks.findings import Finding
from primus_preflight.checks.measuring import needs_this_machine
from primus_preflight.checks.processes import Ended
from primus_preflight.checks.rule import Rule
from primus_preflight.checks.thresholds import packaged
from primus_preflight.gpu.links import needs_gpus

if TYPE_CHECKING:
    from primus_preflight.meeting.peers import Here

__all__ = ["Group", "checks", "gathered", "of_so_many", "summed"]

LIMIT_S = 150.0
"""Torch loads in seconds, or in a minute where all nodes load it from one file system."""
PROGRAM = (sys.executable, "-P", "-m", "primus_preflight.network.all_reduce")
_BYTES = {"cuda": 8 << 30, "cpu": 4 << 20}
"""Of GPUs what the data sheets' figures are of; on CPUs what a slow network carries in a second."""
_REFERENCE = 8
"""The figures are of a node with so many GPUs."""
_LOOK_S = 0.1
_GROUP = "group.json"
_FIX = "run it where the training runs: primus container --image IMAGE -- preflight --level perf; or install torch"


def checks() -> tuple[Check, ...]:
    """Those of collectives."""
    rules = packaged()
    inside, between = "gpu.all-reduce", "network.all-reduce"
    return (
        Check(inside, "the GPUs of this node sum up fast and correctly", (), needs_this_machine(needs_gpus(_inside)),
              rules[inside], "perf"),
        Check(between, "all nodes together sum up correctly", (), _between, rules[between], "perf", meets=True),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Group:
    """The ranks that sum up, in the order of nodes."""

    device: str
    """`cuda` where all nodes have GPUs, or else `cpu`, with one rank for each node."""
    first: int
    """This node's first rank."""
    own: int
    """How many it has."""
    world: int
    address: str
    """Rank 0's."""
    meet: str
    """The file in which rank 0 says its port."""

    def programs(self) -> list[tuple[str, ...]]:
        """What to run here."""
        same = ("--world", str(self.world), "--address", self.address, "--meet", self.meet,
                "--bytes", str(_BYTES[self.device]), "--patience", str(LIMIT_S - 10),
                "--parent", str(os.getpid()))  # fmt: skip
        devices = [f"cuda:{index}" if self.device == "cuda" else "cpu" for index in range(self.own)]
        return [
            (*PROGRAM, "--device", name, "--rank", str(self.first + index), *same) for index, name in enumerate(devices)
        ]


def _devices(facts: Facts) -> int:
    """The GPUs that ranks would get here (`GPUS_PER_NODE` heeds those that are hidden)."""
    requested = facts.environ.get("GPUS_PER_NODE", "")
    count = len(visible(facts.gpus, facts.environ))
    return min(int(requested), count) if requested.isdecimal() else count


def _inside(node: Node, rule: Rule) -> Iterator[Finding]:
    count = _devices(node.facts)
    if count < 2:
        yield rule.moot("a single GPU has no peer")
        return
    import tempfile

    with tempfile.TemporaryDirectory(prefix="preflight-") as folder:
        group = Group("cuda", 0, count, count, "127.0.0.1", os.path.join(folder, "meet.json"))
        yield summed(of_so_many(rule, count, node.model), group, _run(group, node))


def of_so_many(rule: Rule, count: int, model: str) -> Rule:
    """Our figures are of a whole node; what a site says is of the nodes that it has."""
    if count != _REFERENCE and rule.floor == packaged()[rule.check].of(model).floor:
        rule = replace(rule, floor=None)
    return rule if rule.is_set else replace(rule, expected="the right sum")


def _run(group: Group, node: Node, interface: str = "") -> list[Ended]:
    chosen = {"GLOO_SOCKET_IFNAME": interface} if interface else {}
    return processes.together(group.programs(), {**chosen, **node.facts.environ}, LIMIT_S, lambda: None)


def summed(rule: Rule, group: Group, ended: Sequence[Ended]) -> Finding:
    """What the ranks of this node said; the slowest counts."""
    reported = [_result(one.out) for one in ended]
    cannot, wrong = (next((str(one[word]) for one in reported if word in one), "") for word in ("cannot", "wrong"))
    problem = next((one.how for one in ended if one.how), "").replace("in time", f"within {LIMIT_S:g} s")
    values = [float(one["value"]) for one in reported if isinstance(one.get("value"), float)]
    if cannot:
        return replace(rule.unknown("", cannot), fix=_FIX)
    if wrong or problem or len(values) < len(ended):
        return rule.bad("", "a wrong sum" if wrong else "no result", wrong or problem or "a process printed nothing")
    return rule.number("", min(values), measured=f"{min(values):.3g} by {group.world} ranks")


def _result(text: str) -> Mapping[str, Any]:
    """Their one line, the last; libraries may have said others."""
    for line in reversed(text.splitlines()):
        try:
            found = plain_json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return {}


def _between(node: Node, rule: Rule) -> Iterator[Finding]:
    if node.meeting is None:
        yield rule.moot("no other node takes part")
        return
    here = node.meeting.here
    reached = any(one.measured for one in node.meeting.met)
    group = gathered(here, _devices(node.facts), reached=reached) if here else "no address leads to the other nodes"
    if isinstance(group, Group) and group.own == group.world:
        group = "no other node connected"
    if here is None or isinstance(group, str):
        yield replace(rule.unknown("", str(group)), fix=rule.fix)
        return
    try:
        yield summed(rule, group, _run(group, node, here.interface))
    finally:
        if here.place.rank == 0:
            for path in (group.meet, os.path.join(here.folder, _GROUP)):
                _remove(path)


def gathered(here: Here, devices: int, *, reached: bool) -> Group | str:
    """The group of all nodes that have come this far and reach others; or why this one is in none.

    Each says in a file that it is ready, and node 0 says who is in. Files of an earlier start are known by their words.
    """
    mine = os.path.join(here.folder, f"ready-{here.place.rank}.json")
    card = {"word": here.word, "devices": devices, "address": here.address, "reached": reached}
    write_atomically(mine, json.dumps(card), durable=False)
    try:
        if here.place.rank == 0:
            nodes = _ready(here)
            write_atomically(os.path.join(here.folder, _GROUP), json.dumps(nodes), durable=False)
        else:
            nodes = _answer(here)
        return _group(nodes, here)
    finally:
        _remove(mine)


def _ready(here: Here) -> dict[str, Any]:
    """The nodes that say so in time, by rank. Who never came to the meeting is not waited for."""
    deadline = time.monotonic() + here.place.later_s
    found: dict[str, Any] = {}
    while len(found) < here.place.nodes - here.absent and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
        for name in os.listdir(here.folder):
            rank = name.removeprefix("ready-").removesuffix(".json")
            if rank.isdecimal() and name != f"{rank}.json" and (card := _read(os.path.join(here.folder, name))):
                found[rank] = card
    return dict(sorted(found.items(), key=lambda item: int(item[0])))


def _answer(here: Here) -> dict[str, Any]:
    """What node 0 says, once it has heard of this one."""
    deadline = time.monotonic() + 2 * here.place.later_s
    while time.monotonic() < deadline:
        os.listdir(here.folder)  # so that NFS looks again
        found = _read(os.path.join(here.folder, _GROUP))
        if found.get(str(here.place.rank), {}).get("word") == here.word:
            return found
        time.sleep(_LOOK_S)
    return {}


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8", opener=regular) as file:
            found = plain_json.loads(file.read())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _group(nodes: Mapping[str, Mapping[str, Any]], here: Here) -> Group | str:
    if not nodes:
        return "node 0 did not start it in time"
    able = {rank: card for rank, card in nodes.items() if card["reached"]}
    if str(here.place.rank) not in able:
        return "no peer was reached"
    everywhere = all(card["devices"] for card in able.values())
    ranks = {rank: card["devices"] if everywhere else 1 for rank, card in able.items()}
    before = sum(count for rank, count in ranks.items() if int(rank) < here.place.rank)
    leader = next(iter(able.values()))
    meet = os.path.join(here.folder, f"meet-{leader['word']}.json")
    device = "cuda" if everywhere else "cpu"
    return Group(device, before, ranks[str(here.place.rank)], sum(ranks.values()), leader["address"], meet)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
