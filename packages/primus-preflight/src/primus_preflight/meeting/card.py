"""What a node says of itself to the others, and the kind of its address."""

from __future__ import annotations

import socket
from dataclasses import dataclass

__all__ = ["Card", "family"]


@dataclass(frozen=True, slots=True)
class Card:
    """What a node says of itself, in a file that only this user can read."""

    rank: int
    host: str
    address: str
    port: int = 0
    token: str = ""
    """Who shows it has read the file."""
    interface: str = ""
    gbps: float = 0.0
    """What the interface says it can do, Gbit/s; 0: it does not say."""


def family(address: str) -> socket.AddressFamily:
    """IPv4 or IPv6."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET
