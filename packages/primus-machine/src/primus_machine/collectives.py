"""Which adapters and interfaces the collectives take: `NCCL_IB_HCA` and its kin, from what the machine says.

RCCL reads the same variables as NCCL. Nothing here is guessed: what cannot be known is left to them, with a note.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from primus_machine.facts import Facts, Port, Route
from primus_machine.interconnect import is_name

__all__ = ["ROUTE_VARIABLES", "Choice", "Setting", "choose", "interface_by", "interface_to", "selects", "variables"]

_DOCS = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_GLOO_DOCS = "https://docs.pytorch.org/docs/stable/distributed.html#choosing-the-network-interface-to-use"
_VIRTUAL = (
    "lo",
    r"docker\d+|docker_gwbridge|br-[0-9a-f]{12}",  # Docker's bridges; another br-… is not: br-ex is OpenShift's uplink
    r"podman\d+|nerdctl\d+|lxcbr\d+|lxdbr\d+|virbr\d+",  # bridges of other containers and of virtual machines
    r"veth.*|vnet\d+|lxc[0-9a-f]+|cali[0-9a-f]+",  # one end of a cable, the other is inside a container or machine
    r"cni\d+|cni-.+|flannel.*|cilium_.+|vxlan\.calico|tunl0|weave|kube-bridge",  # a Kubernetes node's network of pods
)
"""Interfaces that lead to containers and virtual machines, and never to another node. A bridge (`br0`), a bond and a
VLAN may hold the node's own address; a tunnel (`tun0`, `wg0`) may be the only way between two sites."""
ROUTE_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""With these, ranks use the interface by which their nodes have met, where nobody has named one."""
_SLOW = 4
"""A port that is so many times slower than the fastest carries management or storage, and would slow a ring down."""


class Setting(NamedTuple):
    """A variable of the environment, and why it has this value."""

    name: str
    value: str
    why: str
    source: str
    """Where the variable is documented."""


class Choice(NamedTuple):
    """The variables, and what to tell the person."""

    variables: tuple[Setting, ...] = ()
    notes: tuple[str, ...] = ()


class _Ports(NamedTuple):
    """The ports that were chosen, and why not others."""

    ports: tuple[Port, ...] = ()
    left_out: tuple[str, ...] = ()


def variables(
    facts: Facts, *, has_gpus: bool, nnodes: int, master_address: str, user_environ: Mapping[str, str]
) -> tuple[Setting, ...]:
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
    adapters = adapters._replace(notes=facts.network.notes + adapters.notes)
    names = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME") if has_gpus else ("GLOO_SOCKET_IFNAME",)
    if nnodes == 1 or all(name in user_environ for name in names):
        return adapters
    sockets = _sockets(facts, names, master_address)
    return Choice(adapters.variables + sockets.variables, adapters.notes + sockets.notes)


def _adapters(facts: Facts, selection: str) -> Choice:
    active = tuple(port for port in facts.network.ports if port.active)
    chosen = _fast(_of_one_kind(_with_gid(_Ports(active))))
    # A person who chose the adapters still wants the GID that these have.
    used = tuple(port for port in active if selects(selection, port)) if selection else chosen.ports
    notes = (*_down(facts.network.ports, used, selection), *(() if selection else _idle(active, chosen)))
    if not chosen.ports:
        return Choice(notes=notes)
    gid, gid_note = _gid(used)
    why = f"active {_kind(chosen.ports[0])} ports, by exact name"
    reasons = "; ".join((why, *chosen.left_out, *gid_note))
    listed = f"={_names(chosen.ports, ',')}"
    return Choice((Setting("NCCL_IB_HCA", listed, reasons, f"{_DOCS}#nccl-ib-hca"), *gid), notes)


def _down(ports: Sequence[Port], used: Sequence[Port], selection: str) -> tuple[str, ...]:
    """A note on ports that are down where they are missed: all, or those like the ones in use. A run is slow then.

    Unused second ports of cards are no news. Speeds are not compared: a port that is down does not tell its own.
    """
    if ports and not any(port.active for port in ports):
        return (f"all InfiniBand and RoCE ports are DOWN ({_names(ports)}): NCCL uses TCP between nodes",)
    like = {(port.link_layer, port.driver, port.port) for port in used}
    missed = [p for p in ports if (p.link_layer, p.driver, p.port) in like or (selection and not used)]
    down = [port for port in missed if not port.active and selects(selection, port)]
    return (f"DOWN: {_names(down)}; ports left for NCCL: {len(used)}; check the cables",) if down else ()


def _idle(active: Sequence[Port], chosen: _Ports) -> tuple[str, ...]:
    """A note on active ports that nobody might expect to be left out: all, or those of another kind."""
    if not chosen.ports:
        return (f"no adapter is chosen for NCCL: {'; '.join(chosen.left_out)}",) if active else ()
    kind = _kind(chosen.ports[0])
    others = [port for port in active if _kind(port) != kind]
    note = f"NCCL uses the {kind} ports, not those of another kind: {_names(others)}; set NCCL_IB_HCA to choose others"
    return (note,) if others else ()


def _kind(port: Port) -> str:
    return "InfiniBand" if port.link_layer == "InfiniBand" else "RoCE"


def _names(ports: Sequence[Port], between: str = ", ") -> str:
    return between.join(f"{port.device}:{port.port}" for port in ports)


def _of_one_kind(candidates: _Ports) -> _Ports:
    """One fabric: InfiniBand, unless Ethernet ports as fast as it carry more together. Then it leads to storage."""
    infiniband = [port for port in candidates.ports if _kind(port) == "InfiniBand"]
    roce = [port for port in candidates.ports if _kind(port) == "RoCE"]
    (ib_fastest, ib_total), (fastest, total) = (_speed(ports) for ports in (infiniband, roce))
    if roce and (not infiniband or (fastest >= ib_fastest and total > ib_total)):
        return _keep(candidates, roce, "not RoCE")
    return _keep(candidates, infiniband, "not InfiniBand")


def _speed(ports: Sequence[Port]) -> tuple[float, float]:
    """Of the fastest port, and of all."""
    rates = [port.rate_gbps for port in ports]
    return max(rates, default=0.0), sum(rates)


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
    lost = [port for port in candidates.ports if port not in kept]
    left_out = (f"without {_names(lost)} ({reason})",) if lost else ()
    return _Ports(tuple(kept), candidates.left_out + left_out)


def _gid(ports: Sequence[Port]) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    """`NCCL_IB_GID_INDEX` where all ports have their RoCE v2 GID at one place, or else why not."""
    indexes = sorted({port.gid_index for port in ports if port.link_layer != "InfiniBand"})
    if len(indexes) > 1:
        listed = ", ".join(map(str, indexes))
        return (), (f"no NCCL_IB_GID_INDEX: the ports have their RoCE v2 GIDs at different places ({listed})",)
    if not indexes or indexes[0] < 0:
        return (), ()
    why = "where these ports have their RoCE v2 GID"
    return (Setting("NCCL_IB_GID_INDEX", str(indexes[0]), why, f"{_DOCS}#nccl-ib-gid-index"),), ()


def selects(selection: str, port: Port) -> bool:
    """Whether a value of `NCCL_IB_HCA` takes a port, as NCCL reads it: `mlx5`, `=mlx5_0:1,mlx5_1:1`, `^mlx5_3`."""
    excludes = selection.startswith("^")
    exact = selection.removeprefix("^").startswith("=")
    entries = [entry for entry in selection.removeprefix("^").removeprefix("=").split(",") if entry.partition(":")[0]]
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
        why = problem or "its address cannot be resolved"
        return Choice(
            notes=(f"no interface to MASTER_ADDR {master_address}: {why}; set {who} if the ranks cannot connect",)
        )
    why = f"its route leads to {master_address}"
    found = {
        "NCCL_SOCKET_IFNAME": Setting(  # `=`: this name, and not all that begin with it
            "NCCL_SOCKET_IFNAME", f"={interface}", why, f"{_DOCS}#nccl-socket-ifname"
        ),
        "GLOO_SOCKET_IFNAME": Setting("GLOO_SOCKET_IFNAME", interface, why, _GLOO_DOCS),
    }
    return Choice(tuple(found[name] for name in names))


def _interface(routes: Sequence[Route], addresses: Sequence[str]) -> tuple[str, str]:
    """The interface to the first address that has one, or what is wrong with the last."""
    problem = ""
    for address in addresses:
        plain, _, zone = address.partition("%")
        interface = zone or interface_to(routes, plain)
        if plain.startswith("127.") or plain == "::1":
            problem = f"{plain} is this machine itself (see /etc/hosts)"
        elif not interface:
            problem = f"no route to {plain}"
        elif not is_name(interface):  # of an /etc/hosts that somebody else has written
            problem = f"{address!a} names no interface"
        elif re.fullmatch("|".join(_VIRTUAL), interface):
            problem = f"the route to {plain} leads through {interface}, which reaches no other node"
        else:
            return interface, ""
    return "", problem


def interface_by(routes: Sequence[Route], address: str) -> str:
    """Return the interface that leads to another node's address; empty: it is this machine, or nothing is known."""
    plain, _, zone = address.partition("%")
    found = zone or interface_to(routes, plain)
    return found if found != "lo" and is_name(found) and not plain.startswith("127.") and plain != "::1" else ""


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
