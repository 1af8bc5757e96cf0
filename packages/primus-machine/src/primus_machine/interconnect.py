"""How a machine reaches others: its InfiniBand and RoCE ports and its routes, as the kernel lists them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from primus_machine.host import HostRoot, integer, number, numbered

__all__ = ["DOWNED", "ERRORS", "Network", "Port", "Route", "counter", "is_name", "read"]

_DEVICES = "/sys/class/infiniband"
ERRORS = ("symbol_error", "port_rcv_errors", "local_link_integrity_errors", "excessive_buffer_overrun_errors")
DOWNED = "link_downed"
"""Counters of a port: what it received wrong, and how often its link went down."""
_UP, _REJECT = 0x1, 0x200
"""Flags of a route, from linux/route.h."""
_EMPTY_AFTER = 16
"""A GID table has up to 256 places, filled from the front with few gaps: after so many empty ones nothing comes."""

_GID_KINDS = (
    r"(0000:){5}ffff:[0-9a-f]{4}:[0-9a-f]{4}",  # with an IPv4 address
    r"(?!fe[89ab])([0-9a-f]{4}:){7}[0-9a-f]{4}",  # global
    r"([0-9a-f]{4}:){7}[0-9a-f]{4}",  # link-local
)
"""Forms of a GID, the best first. Not compiled here: most machines have none."""


class Port(NamedTuple):
    """One port of an InfiniBand or RoCE adapter."""

    device: str
    """`mlx5_0`: what `NCCL_IB_HCA` names."""
    port: int
    active: bool
    """State ACTIVE and link up."""
    link_layer: str
    """`InfiniBand` or `Ethernet` (RoCE)."""
    rate_gbps: float = 0.0
    gid_index: int = -1
    """The GID for RoCE v2, from the port's own table; -1: none, or not RoCE."""
    driver: str = ""
    """The kernel driver: `mlx5_core`, `bnxt_en`, `ionic`."""
    numa_node: int = -1


class Route(NamedTuple):
    """One line of the kernel's routing table."""

    network: str
    """`10.1.0.0/16`, `fd00::/64`, `0.0.0.0/0`."""
    interface: str
    metric: int = 0


class Network(NamedTuple):
    """How this machine reaches others."""

    ports: tuple[Port, ...] = ()
    routes: tuple[Route, ...] = ()
    notes: tuple[str, ...] = ()
    """What was found and not taken."""


def read(host: HostRoot) -> Network:
    """Ports in natural order (`mlx5_10` after `mlx5_9`), routes as the kernel lists them."""
    devices = sorted(host.names(_DEVICES), key=lambda name: re.sub(r"\d+", lambda digits: digits[0].zfill(9), name))
    ports = tuple(port for device in filter(is_name, devices) for port in _ports(host, device))
    routes = (*_ipv4_routes(host.text("/proc/net/route") or ""), *_ipv6_routes(host.text("/proc/net/ipv6_route") or ""))
    usable = tuple(route for route in routes if is_name(route.interface))
    return Network(ports, usable, _odd((*devices, *(route.interface for route in routes))))


def counter(host: HostRoot, port: Port, name: str) -> int | None:
    """What a counter of a port says; None where it cannot be read."""
    return integer(host, f"{_DEVICES}/{port.device}/ports/{port.port}/counters/{name}")


def is_name(text: str) -> bool:
    """Whether the kernel gives a device such a name. Others are of a forged capture: names get into a shell's lines."""
    return bool(re.fullmatch(r"[A-Za-z0-9_.:@-]{1,64}", text))


def _odd(names: Iterable[str]) -> tuple[str, ...]:
    odd = list(dict.fromkeys(name for name in names if not is_name(name)))
    listed = ", ".join(ascii(name[:64]) for name in odd[:3])
    more = f" and {len(odd) - 3} more" if len(odd) > 3 else ""
    return (f"ignored as network devices because of their names: {listed}{more}",) if odd else ()


def _ports(host: HostRoot, device: str) -> Iterator[Port]:
    folder = f"{_DEVICES}/{device}"
    driver = re.search(r"^DRIVER=(.*)$", host.text(f"{folder}/device/uevent") or "", re.MULTILINE)
    node = host.text(f"{folder}/device/numa_node") or ""
    for port in numbered(host.names(f"{folder}/ports")):
        yield _port(host, device, port)._replace(
            driver=driver[1] if driver else "", numa_node=number(node) if node.isdecimal() else -1
        )


def _port(host: HostRoot, device: str, port: int) -> Port:
    folder = f"{_DEVICES}/{device}/ports/{port}"
    state, physical, layer, rate = (
        host.text(f"{folder}/{name}") or "" for name in ("state", "phys_state", "link_layer", "rate")
    )
    # `4: ACTIVE`, `5: LinkUp`; some drivers have no `phys_state`
    active = state.startswith("4:") and (not physical or physical.startswith("5:"))
    gid = _gid_index(host, folder) if active and layer == "Ethernet" else -1
    return Port(device, port, active, layer, _gbps(rate), gid)


def _gbps(rate: str) -> float:
    """`400 Gb/sec (4X NDR)` is 400."""
    found = re.match(r"\d{1,9}(?:\.\d{1,9})?", rate)
    return float(found[0]) if found else 0.0


def _gid_index(host: HostRoot, folder: str) -> int:
    """The first RoCE v2 GID with an IPv4 address, else with a global one, else a link-local one; -1 without any."""
    best = (len(_GID_KINDS), -1)
    empty = 0
    for index in numbered(host.names(f"{folder}/gids")):
        kind = _gid_kind(host.text(f"{folder}/gids/{index}") or "")
        empty = empty + 1 if kind is None else 0
        if empty > _EMPTY_AFTER or best[0] == 0:
            break
        if kind is not None and kind < best[0] and host.text(f"{folder}/gid_attrs/types/{index}") == "RoCE v2":
            best = (kind, index)
    return best[1]


def _gid_kind(gid: str) -> int | None:
    """How well a GID suits, 0 best; None for an empty place."""
    if not gid.strip("0:"):
        return None
    return next((index for index, kind in enumerate(_GID_KINDS) if re.fullmatch(kind, gid.lower())), None)


def _ipv4_routes(text: str) -> Iterator[Route]:
    """Lines of `/proc/net/route`: numbers in hexadecimal, addresses as they lie in a little-endian machine's memory.

    Each column must be what the kernel writes: of "GG", no default route is made.
    """
    word, metric, flags = r"[0-9A-Fa-f]{8}", "-?[0-9]{1,10}", "[0-9A-Fa-f]{4}"
    form = rf"(\S+)\s+({word})\s+{word}\s+({flags})\s+\S+\s+\S+\s+({metric})\s+({word})\b.*"
    for found in (re.fullmatch(form, line) for line in text.splitlines()):
        if found and _usable(found[1], found[3]) and (length := _length(found[5])) >= 0:
            network = ".".join(map(str, reversed(bytes.fromhex(found[2]))))
            yield Route(f"{network}/{length}", found[1], int(found[4]) % 2**32)  # the kernel writes it signed


def _length(mask: str) -> int:
    """24 of `00FFFFFF`; -1 of a mask with holes, which the kernel does not have."""
    bits = f"{int.from_bytes(bytes.fromhex(mask), 'little'):032b}".rstrip("0")
    return -1 if "0" in bits else len(bits)


def _ipv6_routes(text: str) -> Iterator[Route]:
    """Lines of `/proc/net/ipv6_route`. Those for multicast (ff00::/8) lead everywhere."""
    import _socket as socket  # `socket` itself costs a dry run 2 ms

    address, length, word = "[0-9a-f]{32}", "[0-9a-f]{2}", "[0-9a-f]{8}"
    form = rf"((?!ff){address}) ({length}) {address} {length} {address} ({word}) {word} {word} ({word})\s+(\S+)"
    for found in (re.fullmatch(form, line.strip()) for line in text.splitlines()):
        if found and _usable(found[5], found[4]) and int(found[2], 16) <= 128:
            network = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(found[1]))
            yield Route(f"{network}/{int(found[2], 16)}", found[5], int(found[3], 16))


def _usable(interface: str, flags: str) -> bool:
    bits = int(flags, 16)
    return interface != "lo" and bool(bits & _UP) and not bits & _REJECT
