"""The nodes of a launch meet before any rank starts: node 0 knows who is missing, says so, and ends the wait in time.

Node 0 listens at MASTER_ADDR:MASTER_PORT, where the ranks meet afterwards; the others connect and say who they are.
Once all have come, node 0 closes the port and tells them to start.

python -m primus_core.programs.rendezvous --address node1 --port 1234 --nodes 2 --node-rank 0 --timeout 600
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from primus_core.environment import placement
from primus_core.logger.logger import get_logger
from primus_core.request.arguments import duration
from primus_machine import interconnect
from primus_machine.collectives import ROUTE_VARIABLES, interface_by
from primus_machine.errors import PrimusError
from primus_machine.host import HostRoot
from primus_machine.rendezvous import server as rendezvous_server
from primus_machine.rendezvous.client import FIX, NAME_FIX, Ended, Rendezvous, RendezvousClient, unresolved
from primus_machine.rendezvous.rank_sockets import FIX as WAYS_FIX
from primus_machine.rendezvous.rank_sockets import IPV6_ADDRESSES, RankSockets, call_all
from primus_machine.rendezvous.server import Refused, RendezvousServer
from primus_machine.units import time_span

__all__ = ["main"]

_FIRST_S, _EVERY_S = 15.0, 60.0
_SPEAKERS = 8
"""On a console that all nodes share, so many of them at most say that nothing answers."""


def main(words: Sequence[str]) -> int:
    """Wait for all nodes.

    Raises:
        PrimusError: a node did not come in time, or does not belong to this launch.
    """
    parser = argparse.ArgumentParser(prog="python -m primus_core.programs.rendezvous", allow_abbrev=False)
    parser.add_argument("--address", required=True)
    for name in ("--port", "--nodes", "--node-rank"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--timeout", type=duration, required=True)
    parser.add_argument("--gpus", action="store_true", help="NCCL or RCCL carries what ranks send")
    args = parser.parse_args(words)
    place = Rendezvous(args.address, args.port, args.nodes, args.node_rank)
    here = HostRoot()
    wait = _Wait(args.timeout)
    variables = ROUTE_VARIABLES if args.gpus else ROUTE_VARIABLES[:1]
    addresses = (_receive if place.rank == 0 else _join)(place, wait, here, variables)
    _tell_route(addresses, here, variables)
    return 0


def _tell_route(addresses: Sequence[str], here: HostRoot, names: Sequence[str]) -> None:
    """Print the interface that leads to the other nodes: their own names may lead each of them to itself."""
    interface = _route(addresses, here)
    for name in names if interface else ():
        if name not in here.environ:
            print(f"env.{name}={'=' * name.startswith('NCCL')}{interface}", flush=True)


def _route(addresses: Sequence[str], here: HostRoot) -> str:
    """Return the interface that leads to most of the other nodes; empty: they are on this machine."""
    routes = interconnect.read(here).routes
    found = Counter(name for name in (interface_by(routes, address) for address in addresses) if name)
    return next((interface for interface, _ in found.most_common(1)), "")


def _listen(addresses: Sequence[str], here: HostRoot, names: Sequence[str]) -> RankSockets:
    """Listen as the ranks of this node will; nodes on one machine need not."""
    route = _route(addresses, here)
    return RankSockets(here.environ, route, names if route else (), here.text(IPV6_ADDRESSES) or "")


class _Wait:
    """When to say something, and when to give up."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.began = time.monotonic()
        self.next_s = _FIRST_S

    @property
    def so_far_s(self) -> float:
        return time.monotonic() - self.began

    @property
    def is_over(self) -> bool:
        return self.so_far_s >= self.limit_s

    def say(self, text: str) -> None:
        """The first time after 15 s, then each minute."""
        if self.so_far_s < self.next_s:
            return
        self.next_s += _EVERY_S
        left = f"gives up after {time_span(self.limit_s)} (--rendezvous-timeout)"
        message = f"primus: rendezvous: {text}; waiting for {time_span(self.so_far_s)}, {left}"
        get_logger().info("rendezvous_waiting", message=message, waited_s=round(self.so_far_s, 1))


def _names(environ: Mapping[str, str], nodes: int) -> Sequence[str]:
    """Of the nodes by rank, where a scheduler says them."""
    found = list(placement.allocated(environ))
    return found if len(found) == nodes else ()


def _receive(place: Rendezvous, wait: _Wait, here: HostRoot, variables: Sequence[str]) -> list[str]:
    """Do node 0's part; the addresses of the others."""
    names, knows = _names(here.environ, place.nodes), bool(here.addresses(place.address))
    cause = "" if knows else f"; {unresolved(place.address)}"
    with RendezvousServer(place, _FIRST_S) as server:
        while missing := server.missing:
            text = f"{place.nodes - len(missing)} of {place.nodes} nodes have arrived at {place.where}; missing: "
            text += f"{_listed(missing, names)}{cause}"
            if wait.is_over:
                what = f"rendezvous: {text}"
                server.end(what)
                why = f"waited for {time_span(wait.limit_s)} (--rendezvous-timeout)"
                raise PrimusError(what, why=why, fix=FIX if knows else NAME_FIX)
            wait.say(text)
            server.look()
        addresses = server.addresses
        _check_ways(server, wait, _listen(addresses, here, variables), here.hostname(), _route(addresses, here))
        server.start()
    return addresses


def _check_ways(server: RendezvousServer, wait: _Wait, sockets: RankSockets, host: str, zone: str) -> None:
    """Have each node call the next one where its ranks will listen.

    Raises:
        PrimusError: some do not reach each other.
    """
    server.listening, server.host = tuple(sockets.listening), host
    failed = None
    with contextlib.closing(sockets):
        while failed is None and not server.missing and not wait.is_over:
            failed = server.call()
            server.look()
        own = call_all(server.targets(0), zone)
    found = "; ".join(filter(None, (own and f"node rank 0 ({host}) cannot reach {own}", failed)))
    if found or server.missing:
        what = f"rendezvous: {found or 'a node has left'}"
        server.end(what, is_unreachable=bool(found))
        raise PrimusError(what, why="the ranks would wait for each other", fix=WAYS_FIX if found else FIX)


def _listed(ranks: Sequence[int], names: Sequence[str]) -> str:
    named = [f"{rank} ({names[rank]})" if names else str(rank) for rank in ranks[: rendezvous_server.LISTED]]
    more = f" and {len(ranks) - len(named)} more" if len(ranks) > len(named) else ""
    return f"node rank{'s' * (len(ranks) > 1)} {', '.join(named)}{more}"


def _join(place: Rendezvous, wait: _Wait, here: HostRoot, variables: Sequence[str]) -> list[str]:
    """Call node 0 until it lets this node start; its address."""
    call = RendezvousClient(place, here.hostname(), lambda address: _listen([address], here, variables))
    shared = placement.allocation(here.environ)  # all nodes on one console, where node 0 speaks
    try:
        while not call.look():
            if wait.is_over:
                why = f"waited for {time_span(wait.limit_s)} (--rendezvous-timeout)"
                raise PrimusError(f"rendezvous: node rank {place.rank}: {call.state}", why=why, fix=call.fix)
            if not shared or (not call.is_answered and place.rank < _SPEAKERS):
                wait.say(f"node rank {place.rank}: {call.state}")
    except Refused as error:
        fix = "start each node with the same NNODES and a different NODE_RANK"
        raise PrimusError(f"rendezvous: node rank {place.rank}: {error}", fix=fix) from None
    except Ended as error:
        fix = WAYS_FIX if error.is_unreachable else FIX
        raise PrimusError(str(error), why=f"node 0 at {place.where} has given up", fix=fix) from None
    return [call.reached]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
