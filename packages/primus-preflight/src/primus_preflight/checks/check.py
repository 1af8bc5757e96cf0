"""A check: what it reads, and a pure function from a node to findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from primus_machine.facts import Facts, Gpu
from primus_machine.gpus.visible import choosing, hides_gpus, visible
from primus_machine.host import HostRoot
from primus_preflight.checks.findings import Finding, sound
from primus_preflight.checks.rule import Rule
from primus_preflight.machine.files import shows_gpus

if TYPE_CHECKING:
    from primus_preflight.meeting.peers import Meeting

__all__ = [
    "AGAIN",
    "GROUPS",
    "LACKING",
    "LEVELS",
    "NO_GPU",
    "Ask",
    "Check",
    "Level",
    "Node",
    "absence",
    "lacking",
    "no_gpu",
    "unseen",
]

Level = Literal["quick", "perf", "full"]
LEVELS: tuple[Level, ...] = ("quick", "perf", "full")
"""What each costs: seconds, minutes, longer. Each contains those before it."""
LACKING = "the capture lacks it"
"""Why a check of a captured machine is unknown of which the capture has nothing."""
AGAIN = "capture the machine again, as root: primus env capture -o FILE"
GROUPS = ("host", "gpu", "network")
NO_GPU = "no GPU here"


class Node(NamedTuple):
    """What a check looks at."""

    facts: Facts
    run_dir: str = ""
    """Where the run writes: a disk with room for it."""
    meeting: Meeting | None = None
    """What came of meeting the other nodes; None: there are none, or nothing that was asked needs them."""
    devices: int = 0
    """How many GPU devices the launch needs on each node; 0: nobody says."""
    cpu: bool = False
    """Whether somebody asked to train on the CPUs."""

    @property
    def host(self) -> HostRoot:
        """The machine's files."""
        return self.facts.host

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs to judge: those that the lists of visible devices leave."""
        facts = self.facts
        return () if self.cpu else tuple(facts.gpus[index] for index in visible(facts.gpus, facts.environ))

    @property
    def is_narrowed(self) -> bool:
        """Return whether a list of visible devices leaves some of the machine's GPUs, and not all."""
        return 0 < len(self.gpus) < len(self.facts.gpus)

    @property
    def lists(self) -> str:
        """Return the variables that choose GPUs, with their values."""
        environ = self.facts.environ
        return " ".join(f"{name}={environ[name]}" for name in choosing(self.facts.gpus, environ))

    @property
    def why_cpu(self) -> str:
        """Return by what somebody asked to train on the CPUs; empty: nobody did."""
        hidden = f"{self.lists} hides all GPUs" if hides_gpus(self.facts.gpus, self.facts.environ) else ""
        return "--cpu: training on the CPUs" if self.cpu else hidden

    @property
    def model(self) -> str:
        """That of all its GPUs; empty: it has none, none that Primus knows, or several."""
        models = {gpu.model for gpu in self.gpus}
        return models.pop() if len(models) == 1 else ""


Ask = Callable[[Node, Rule], Iterable[Finding]]


def lacking(one: Finding) -> Finding:
    """Return `one`, an unknown, as what a capture lacks."""
    return replace(one, why=LACKING, fix=AGAIN, cause="capture")


def unseen(node: Node, rule: Rule, why: str, subject: str = "") -> Finding:
    """Return that what a check looks at cannot be read, and why; of a capture, that it lacks it."""
    found = rule.unknown(subject, why)
    return found if node.host.is_here else lacking(found)


def absence(node: Node, rule: Rule, why: str, *, is_known: bool) -> Finding:
    """Return that there is nothing to look at; unknown where a capture lacks what would say so."""
    return rule.skip(why) if is_known else unseen(node, rule, why)


def no_gpu(node: Node, rule: Rule) -> Finding:
    """Return that a check of GPUs finds none."""
    return rule.skip(node.why_cpu) if node.why_cpu else absence(node, rule, NO_GPU, is_known=shows_gpus(node.host))


@dataclass(frozen=True, slots=True)
class Check:
    """One check. Packages bring some by entry points of the group `primus.checks`: a function that returns a tuple."""

    name: str
    """`gpu.pcie-speed`: its group and its name."""
    summary: str
    reads: tuple[str, ...]
    """Patterns of files that it reads, so that a capture has them; `access:PATH` and `space:PATH` are asked of the
    kernel."""
    ask: Ask
    rule: Rule
    level: Level = "quick"
    meets: bool = False
    """Whether it needs what came of meeting the other nodes."""

    @property
    def group(self) -> str:
        """`host`, `gpu`, `network`, or another's."""
        return self.name.partition(".")[0]

    def findings(self, node: Node) -> tuple[Finding, ...]:
        """What it finds. A check that breaks, or finds nothing to say, has measured nothing."""
        try:
            found = tuple(map(sound, self.ask(node, self.rule.of(node.model))))
        except (
            Exception,
            SystemExit,
        ) as error:  # a check may be anybody's, and must not take the others' results along
            return (self.rule.unknown("", f"the check itself failed: {type(error).__name__}: {error}"),)
        found = tuple(map(self._with_reason, found)) or (self.rule.unknown("", "the check returned no finding"),)
        return found if node.host.is_here else tuple(map(self._of_capture, found))

    def is_captured(self, node: Node) -> bool:
        """Return whether a capture of a machine has anything that this check reads."""
        asked = {"access": node.host.access, "space": node.host.space}
        for pattern in self.reads:
            how, _, plain = pattern.rpartition(":/")
            ask = asked.get(how, node.host.text)
            if any(ask(path) for path in node.host.paths(plain if how in asked else pattern)):
                return True
        return not self.reads

    def _of_capture(self, one: Finding) -> Finding:
        """What a capture does not hold cannot be made readable there."""
        if one.status != "unknown" or one.fix != self.rule.unknown("", "").fix:
            return one
        again = "capture the machine again with this version (primus env capture -o FILE), or run the check on it"
        why = f"{one.why}: the capture may lack it"
        return replace(one, why=why, fix=f"{again}, or skip the check: --skip {self.name}")

    def _with_reason(self, one: Finding) -> Finding:
        """Unknown always says why."""
        if one.status != "unknown" or one.why:
            return one
        return replace(one, why=f"cannot read {', '.join(self.reads) or 'the running machine'}")
