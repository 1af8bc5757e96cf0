"""The GPU nodes of the AMD driver's topology, with the links between them, which detection does not need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from primus_core.host import HostRoot, number, numbered

__all__ = ["FOLDER", "LINKS", "READS", "KfdNode", "nodes"]

FOLDER = "/sys/class/kfd/kfd/topology/nodes"
LINKS = ("io_links", "p2p_links")
READS = (f"{FOLDER}/*/properties", *(f"{FOLDER}/*/{kind}/*/properties" for kind in LINKS))
_XGMI = 11
"""Type of a link, from Linux, include/uapi/linux/kfd_sysfs.h."""


class KfdNode(NamedTuple):
    """A device of the topology."""

    number: int
    properties: Mapping[str, int]
    xgmi: frozenset[int] | None
    """The nodes to which xGMI leads; None: the links cannot be read."""

    @property
    def address(self) -> str:
        """Of its GPU on the PCI bus. The function carries the partition: a GPU itself is function 0."""
        place, domain = self.properties.get("location_id", 0), self.properties.get("domain", 0)
        return f"{domain & 0xFFFFFFFF:04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.0"

    @property
    def hive(self) -> int:
        """Number of the group that xGMI joins; 0: none."""
        return self.properties.get("hive_id", 0)


def nodes(host: HostRoot, device_ids: frozenset[int]) -> tuple[KfdNode, ...]:
    """The nodes with these PCI device ids, as the driver numbers them."""
    found = ((node, _properties(host, f"{FOLDER}/{name}")) for node, name in numbered(host.names(FOLDER)).items())
    return tuple(
        KfdNode(node, properties or {}, _xgmi(host, f"{FOLDER}/{node}"))
        for node, properties in found
        if properties and properties.get("simd_count") and properties.get("device_id") in device_ids
    )


def _properties(host: HostRoot, folder: str) -> dict[str, int] | None:
    text = host.text(f"{folder}/properties")
    words = (line.split() for line in (text or "").splitlines())
    return {one[0]: number(one[1]) for one in words if len(one) == 2} if text is not None else None


def _xgmi(host: HostRoot, folder: str) -> frozenset[int] | None:
    """None where a link's file cannot be read: it might be the one that is missed."""
    if "io_links" not in host.names(folder):
        return None
    paths = [f"{folder}/{kind}/{name}" for kind in LINKS for name in host.names(f"{folder}/{kind}")]
    links = [_properties(host, path) for path in paths]
    if any(link is None for link in links):
        return None
    return frozenset(link["node_to"] for link in links if link and link.get("type") == _XGMI and "node_to" in link)
