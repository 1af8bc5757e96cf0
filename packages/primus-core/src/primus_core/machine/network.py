"""Which adapters and interfaces the collectives take: `NCCL_IB_HCA` and its kin, from what the machine says.

RCCL reads the same variables as NCCL. Nothing here is guessed: what cannot be known is left to them, with a note.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from primus_core.facts import Facts, Port, Route
from primus_core.plan import Variable

__all__ = ["Choice", "choose", "interface_to", "selects", "variables"]

_DOCS = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_GLOO_DOCS = "https://docs.pytorch.org/docs/stable/distributed.html#choosing-the-network-interface-to-use"
_VIRTUAL = re.compile(r"lo|docker\d*|(br-|veth|virbr|cni|flannel|cali).*")
"""Interfaces that lead to containers and virtual machines on this one, and never to another node."""
_SLOW = 4
"""A port that is so many times slower than the fastest carries management or storage, and would slow a ring down."""


class Choice(NamedTuple):
    """The variables, and what to tell the person."""

    variables: tuple[Variable, ...] = ()
    notes: tuple[str, ...] = ()


class _Ports(NamedTuple):
    """The ports that were chosen, and why not others."""

    ports: tuple[Port, ...] = ()
    left_out: tuple[str, ...] = ()


def variables(
    facts: Facts, *, has_gpus: bool, nnodes: int, master_address: str, user_environ: Mapping[str, str]
) -> tuple[Variable, ...]:
    """The variables of `choose`."""
    chosen = choose(facts, has_gpus=has_gpus, nnodes=nnodes, master_address=master_address, user_environ=user_environ)
    return chosen.variables


def choose(
    facts: Facts, *, has_gpus: bool, nnodes: int, master_address: str, user_environ: Mapping[str, str]
) -> Choice:
    """What the collectives should use on this node. What the person set is not looked at, save to match it.

    `has_gpus`: ranks will use GPUs, so NCCL carries their traffic. `master_address`: a name or an address.
    """
    adapters = _adapters(facts, user_environ.get("NCCL_IB_HCA", "")) if has_gpus else Choice()
    names = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME") if has_gpus else ("GLOO_SOCKET_IFNAME",)
    if nnodes == 1 or all(name in user_environ for name in names):
        return adapters
    sockets = _sockets(facts, names, master_address)
    return Choice(adapters.variables + sockets.variables, adapters.notes + sockets.notes)


def _adapters(facts: Facts, said: str) -> Choice:
    active = tuple(port for port in facts.network.ports if port.active)
    chosen = _fast(_with_gid(_of_one_kind(_Ports(active))))
    if active and not chosen.ports:
        return Choice(notes=(f"no adapter is chosen for NCCL: {'; '.join(chosen.left_out)}",))
    # A person who chose the adapters still wants the GID that these have.
    used = tuple(port for port in active if selects(said, port)) if said else chosen.ports
    gid, gid_note = _gid(used)
    if not chosen.ports:
        return Choice()
    listed = ",".join(f"{port.device}:{port.port}" for port in chosen.ports)
    why = f"active {'InfiniBand' if chosen.ports[0].link_layer == 'InfiniBand' else 'RoCE'} ports, by exact name"
    reasons = "; ".join((why, *chosen.left_out, *gid_note))
    return Choice((Variable("NCCL_IB_HCA", f"={listed}", "network", reasons, source=f"{_DOCS}#nccl-ib-hca"), *gid))


def _of_one_kind(candidates: _Ports) -> _Ports:
    """InfiniBand where there is some: the Ethernet beside it is for other things."""
    infiniband = tuple(port for port in candidates.ports if port.link_layer == "InfiniBand")
    return _keep(candidates, infiniband or candidates.ports, "not InfiniBand")


def _with_gid(candidates: _Ports) -> _Ports:
    """RoCE v2 needs a GID; iWARP and RoCE v1 have none."""
    kept = tuple(port for port in candidates.ports if port.link_layer == "InfiniBand" or port.gid_index >= 0)
    return _keep(candidates, kept, "no RoCE v2 GID")


def _fast(candidates: _Ports) -> _Ports:
    fastest = max((port.rate_gbps for port in candidates.ports), default=0.0)
    kept = tuple(port for port in candidates.ports if port.rate_gbps * _SLOW > fastest or not fastest)
    slow = sorted({f"{port.rate_gbps:g}" for port in set(candidates.ports) - set(kept)})
    return _keep(candidates, kept, f"{'/'.join(slow)} beside {fastest:g} Gb/s")


def _keep(candidates: _Ports, kept: Sequence[Port], reason: str) -> _Ports:
    lost = [f"{port.device}:{port.port}" for port in candidates.ports if port not in kept]
    left_out = (f"without {', '.join(lost)} ({reason})",) if lost else ()
    return _Ports(tuple(kept), candidates.left_out + left_out)


def _gid(ports: Sequence[Port]) -> tuple[tuple[Variable, ...], tuple[str, ...]]:
    """`NCCL_IB_GID_INDEX` where all ports have their RoCE v2 GID at one place, or else why not."""
    indexes = sorted({port.gid_index for port in ports if port.link_layer != "InfiniBand"})
    if len(indexes) > 1:
        listed = ", ".join(map(str, indexes))
        return (), (f"no NCCL_IB_GID_INDEX: the ports have their RoCE v2 GIDs at different places ({listed})",)
    if not indexes or indexes[0] < 0:
        return (), ()
    why = "where these ports have their RoCE v2 GID"
    return (Variable("NCCL_IB_GID_INDEX", str(indexes[0]), "network", why, source=f"{_DOCS}#nccl-ib-gid-index"),), ()


def selects(said: str, port: Port) -> bool:
    """Whether a value of `NCCL_IB_HCA` takes a port, as NCCL reads it: `mlx5`, `=mlx5_0:1,mlx5_1:1`, `^mlx5_3`."""
    excludes = said.startswith("^")
    exact = said.removeprefix("^").startswith("=")
    entries = [entry for entry in said.removeprefix("^").removeprefix("=").split(",") if entry.partition(":")[0]]
    return excludes != (not entries or any(_matches(entry, port, exact=exact) for entry in entries))


def _matches(entry: str, port: Port, *, exact: bool) -> bool:
    name, _, number = entry.partition(":")
    right_name = port.device == name if exact else port.device.startswith(name)
    return right_name and (not number or number == str(port.port))


def _sockets(facts: Facts, names: Sequence[str], master_address: str) -> Choice:
    addresses = facts.host.addresses(master_address)
    interface, problem = _interface(facts.network.routes, addresses)
    if not interface:
        who = " and ".join(names)
        why = problem or "its address is not known here"
        return Choice(notes=(f"no interface to MASTER_ADDR {master_address}: {why}; set {who} if ranks do not meet",))
    why = f"its route leads to {master_address}"
    found = {
        "NCCL_SOCKET_IFNAME": Variable(  # `=`: this name, and not all that begin with it
            "NCCL_SOCKET_IFNAME", f"={interface}", "network", why, source=f"{_DOCS}#nccl-socket-ifname"
        ),
        "GLOO_SOCKET_IFNAME": Variable("GLOO_SOCKET_IFNAME", interface, "network", why, source=_GLOO_DOCS),
    }
    return Choice(tuple(found[name] for name in names))


def _interface(routes: Sequence[Route], addresses: Sequence[str]) -> tuple[str, str]:
    """The interface to the first address that has one, or what is wrong with the last."""
    problem = ""
    for address in addresses:
        interface = address.partition("%")[2] or interface_to(routes, address)
        if address.startswith("127.") or address == "::1":
            problem = f"{address} is this machine itself (see /etc/hosts)"
        elif not interface:
            problem = f"no route to {address}"
        elif _VIRTUAL.fullmatch(interface):
            problem = f"the route to {address} leads through {interface}, which reaches no other node"
        else:
            return interface, ""
    return "", problem


def interface_to(routes: Sequence[Route], address: str) -> str:
    """The interface by which the kernel reaches an IP address: longest prefix, then lowest metric; empty: none."""
    wanted, bits = _number(address)
    best: tuple[int, int] = (-1, 0)
    found = ""
    for route in routes:
        network, _, length = route.network.partition("/")
        start, width = _number(network)
        shift = bits - int(length)
        rank = (int(length), -route.metric)
        if width == bits and wanted >> shift == start >> shift and (not found or rank > best):
            best, found = rank, route.interface
    return found


def _number(address: str) -> tuple[int, int]:
    """An address as a number, and how many bits that has."""
    import socket

    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    data = socket.inet_pton(family, address)
    return int.from_bytes(data), len(data) * 8
