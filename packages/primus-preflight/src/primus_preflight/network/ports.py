"""Checks of the network: ports and adapters for RDMA, and the interface by which ranks meet."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from primus_machine.collectives import interface_to
from primus_machine.facts import Port
from primus_machine.host import HostRoot
from primus_machine.interconnect import DOWNED, ERRORS, counter
from primus_preflight.checks.check import Ask, Check, Node, absence, unseen
from primus_preflight.checks.findings import Finding
from primus_preflight.checks.rule import Rule
from primus_preflight.checks.thresholds import packaged
from primus_preflight.machine.files import integer, shows_network
from primus_preflight.network import collectives, pairs

__all__ = ["checks"]

_IB = "/sys/class/infiniband"
_NET = "/sys/class/net"
_ROUTES = ("/proc/net/route", "/proc/net/ipv6_route")
_NO_ADAPTER = "no InfiniBand or RoCE adapter here"
_SWITCHED_OFF = ("1:", "3:")
"""Physical states Sleep and Disabled: somebody wants it so."""


def checks() -> tuple[Check, ...]:
    """Those of the network."""
    port = f"{_IB}/*/ports/*"
    counters = tuple(f"{port}/counters/{name}" for name in ERRORS)
    gids = (f"{port}/gids/*", f"{port}/gid_attrs/types/*")
    interfaces = (f"{_NET}/*/operstate", f"{_NET}/*/speed", *_ROUTES)
    return (
        _check("ports", "each RDMA port is up or disabled", (f"{port}/state", f"{port}/phys_state"), _ports),
        _check("active-ports", "the number of active RDMA ports", (f"{port}/state",), _active),
        _check("rate", "each port is as fast as similar ports", (f"{port}/rate", f"{_IB}/*/board_id"), _rate),
        _check("gid", "each RoCE port has a GID for RoCE v2", gids, _gid),
        _check("mtu", "adapters of one kind have one MTU", (f"{_IB}/*/device/net/*/mtu",), _mtu),
        _check("flaps", "links did not go down repeatedly", (f"{port}/counters/link_downed",), _flaps),
        _check("errors", "ports receive without errors", counters, _errors),
        _check("interface", "the interface to the master, or to the outside, is up", interfaces, _interface),
        *pairs.checks(),
        *collectives.checks(),
    )  # fmt: skip


def _check(name: str, summary: str, reads: tuple[str, ...], ask: Ask) -> Check:
    return Check(f"network.{name}", summary, reads, ask, packaged()[f"network.{name}"])


def _needs_ports(ask: Callable[[Node, Rule, Sequence[Port]], Iterator[Finding]], *, up: bool = True) -> Ask:
    """A check of all ports, or of those that are up: what a port is that is down is no news."""

    def asked(node: Node, rule: Rule) -> Iterator[Finding]:
        ports = [port for port in node.facts.network.ports if port.active or not up]
        if ports:
            yield from ask(node, rule, ports)
        else:
            why = "no InfiniBand or RoCE port is up here" if up else _NO_ADAPTER
            yield absence(node, rule, why, is_known=bool(node.facts.network.ports) or shows_network(node.host))

    return asked


def _name(port: Port) -> str:
    return f"{port.device}:{port.port}"


def _folder(port: Port) -> str:
    return f"{_IB}/{port.device}/ports/{port.port}"


def _all_ports(node: Node, rule: Rule, ports: Sequence[Port]) -> Iterator[Finding]:
    for port in ports:
        state, physical = (node.host.text(f"{_folder(port)}/{name}") or "" for name in ("state", "phys_state"))
        states = ", ".join(word.partition(": ")[2] or word for word in (state, physical) if word)
        if not state:
            yield rule.unknown(_name(port), "its state cannot be read")
        elif port.active:
            yield rule.good(_name(port), states)
        elif physical.startswith(_SWITCHED_OFF):
            yield rule.skip(f"disabled ({states})", _name(port))
        else:
            yield rule.bad(_name(port), states)


def _active(node: Node, rule: Rule) -> Iterator[Finding]:
    ports = node.facts.network.ports
    unread = [port for port in ports if not node.host.text(f"{_folder(port)}/state")]
    if not ports:
        yield rule.none(_NO_ADAPTER) if shows_network(node.host) else unseen(node, rule, _NO_ADAPTER)
    elif unread:
        yield rule.unknown("", f"the state cannot be read of {', '.join(map(_name, unread))}")
    else:
        yield rule.number("", sum(port.active for port in ports))


def _kind(host: HostRoot, port: Port) -> tuple[str, ...]:
    """What like ports have in common: the board, or else driver and layer."""
    board = host.text(f"{_IB}/{port.device}/board_id") or host.text(f"{_IB}/{port.device}/hca_type") or ""
    return (board, port.driver, port.link_layer)


def _rates(node: Node, rule: Rule, ports: Sequence[Port]) -> Iterator[Finding]:
    """`400 Gb/sec (4X NDR)`. A port that trained on fewer lanes is slow; so is one with less than its like."""
    for port in ports:
        text = node.host.text(f"{_folder(port)}/rate") or ""
        like = [other.rate_gbps for other in ports if _kind(node.host, other) == _kind(node.host, port)]
        usual = max(Counter(like).items(), key=lambda item: (item[1], item[0]))[0]
        lanes = re.search(r"\(([0-9]+)X", text)
        if not port.rate_gbps:
            yield rule.unknown(_name(port), "its rate cannot be read")
        elif port.rate_gbps < usual:
            yield rule.bad(_name(port), f"{port.rate_gbps:g}", f"its like have {usual:g}", port.rate_gbps)
        elif port.link_layer == "InfiniBand" and lanes and int(lanes[1]) < 4:
            yield rule.bad(_name(port), f"{port.rate_gbps:g}", f"it trained on {lanes[1]} of 4 lanes", port.rate_gbps)
        else:
            yield rule.number(_name(port), port.rate_gbps, measured=f"{port.rate_gbps:g}")


def _gids(node: Node, rule: Rule, ports: Sequence[Port]) -> Iterator[Finding]:
    roce = [port for port in ports if port.link_layer == "Ethernet"]
    if not roce:
        yield rule.skip("no RoCE port is up here")
    for port in roce:
        there = node.host.names(f"{_folder(port)}/gids")
        if port.gid_index >= 0:
            yield rule.good(_name(port), f"index {port.gid_index}")
        else:
            yield rule.bad(_name(port), "none") if there else rule.unknown(_name(port), "its GIDs cannot be read")


def _mtus(node: Node, rule: Rule, ports: Sequence[Port]) -> Iterator[Finding]:
    """Of the interfaces of RoCE adapters."""
    kinds = {port.device: _kind(node.host, port) for port in ports if port.link_layer == "Ethernet"}
    paths = [(device, path) for device in kinds for path in node.host.paths(f"{_IB}/{device}/device/net/*/mtu")]
    found = {path: integer(node.host, path) for _, path in paths}
    if not kinds:
        yield rule.skip("no RoCE port is up here")
    elif not paths:
        yield rule.unknown("", "no interface of a RoCE adapter is seen")
    for device, path in paths:
        mtu, interface = found[path], path.split("/")[-2]
        like = [value for other, its in paths if kinds[other] == kinds[device] and (value := found[its]) is not None]
        if mtu is None:
            yield rule.unknown(interface, "its MTU cannot be read")
        elif mtu < max(like) and like.count(mtu) <= like.count(max(like)):
            yield rule.bad(interface, str(mtu), f"similar ports have {max(like)}", mtu)
        else:
            yield rule.good(interface, str(mtu), mtu)


def _lost(node: Node, rule: Rule, ports: Sequence[Port]) -> Iterator[Finding]:
    for port in ports:
        count = counter(node.host, port, DOWNED)
        yield rule.number(_name(port), count, why="" if count is not None else "counters/link_downed cannot be read")


def _counted(node: Node, rule: Rule, ports: Sequence[Port]) -> Iterator[Finding]:
    for port in ports:
        found = {name: counter(node.host, port, name) for name in ERRORS}
        missing = [name for name, count in found.items() if count is None]
        if missing:
            yield rule.unknown(_name(port), f"{', '.join(missing)} cannot be read")
        else:
            listed = ", ".join(f"{name} {count}" for name, count in found.items() if count)
            yield rule.number(_name(port), sum(count or 0 for count in found.values()), why=listed)


_ports = _needs_ports(_all_ports, up=False)
_rate, _gid, _mtu, _flaps, _errors = map(_needs_ports, (_rates, _gids, _mtus, _lost, _counted))


def _interface(node: Node, rule: Rule) -> Iterator[Finding]:
    facts = node.facts
    master = facts.environ.get("MASTER_ADDR", "")
    addresses = facts.host.addresses(master)
    if master in ("", "localhost") or any(address == "::1" or address.startswith("127.") for address in addresses):
        master, addresses = "", ("192.0.2.1", "2001:db8::1")  # nobody's: what leads there leads to the outside
    found = [name for address in addresses if (name := interface_to(facts.network.routes, address))]
    is_known = node.host.is_here or any(node.host.text(path) is not None for path in _ROUTES)
    if not found and master and is_known:
        why = (
            f"no route leads to MASTER_ADDR {master}"
            if addresses
            else f"the address of MASTER_ADDR {master} is not known"
        )
        yield rule.bad("", "none", why) if addresses and facts.network.routes else rule.unknown("", why)
    elif not found:
        why = "no route leads out of this machine, and MASTER_ADDR names no other"
        yield absence(node, rule, why, is_known=is_known)
    else:
        state = node.host.text(f"{_NET}/{found[0]}/operstate")
        yield rule.word(found[0], state, why=f"{_NET}/{found[0]}/operstate cannot be read")
