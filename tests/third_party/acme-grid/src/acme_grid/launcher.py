"""Launcher `acme-fork`: the ranks of a node are forked from one Python."""

from __future__ import annotations

import re
from collections.abc import Iterator

from primus_core.contracts.launcher import LaunchCall, Launcher, LaunchPlan, Signalled
from primus_core.plan.plan import Step


class Fork:
    """Launcher `acme-fork`."""

    name = "acme-fork"
    one_per_node = False
    reports = True
    families = ("ACME_FORK_",)

    def plan(self, call: LaunchCall) -> LaunchPlan:
        place = call.place
        first = place.node_rank * place.gpus_per_node
        shape = (str(place.gpus_per_node), str(first), str(place.world_size))
        argv = (call.facts.python, "-m", "acme_grid.fork", *shape, *call.rank)
        return LaunchPlan(
            Step("worker", argv, call.facts.cwd, ranks=place.gpus_per_node, first_rank=first, kind="worker")
        )

    def signalled(self, output: str) -> Iterator[Signalled]:
        """What `acme_grid.fork` prints."""
        for rank, number, host in re.findall("^acme-fork: rank ([0-9]+): signal ([0-9]+) on (.+)$", output, re.M):
            yield Signalled(int(rank), int(number), host)


FORK: Launcher = Fork()
