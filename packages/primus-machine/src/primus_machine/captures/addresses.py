"""Other addresses, and names made of them, for a machine's own: what a capture keeps is their structure alone.

Two addresses that begin with the same bits still do, and of two the lower one stays the lower: so the same route leads
to the same place. Only where addresses part is kept: every other bit becomes 0, so that nothing leads back.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable, Mapping

__all__ = ["replaced"]

_SPECIAL = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.1/32", "169.254.0.0/16", "172.16.0.0/12"),
    *("192.168.0.0/16", "224.0.0.0/4", "255.255.255.255/32"),
    *("::1/128", "::ffff:0:0/96", "64:ff9b::/96", "2000::/3", "fd00::/8", "fe80::/64", "ff00::/8"),
)
"""What has a meaning of its own (RFC 6890): an address keeps the one that it has, or that it has none."""
_MAPPED = f"{'0' * 80}{'1' * 16}"
"""Before an IPv4 address in an IPv6 one."""
_GID = re.compile(r"(?:[0-9a-fA-F]{4}:){7}[0-9a-fA-F]{4}")
_NAME = re.compile(r"(?<![0-9A-Za-z])([a-z]{2,5}?x?)([0-9a-f]{16}|[0-9a-f]{12})(?![0-9A-Za-z])")
"""`enx5ea25e102030`, `roce5ea25e102030`: udev and rdma-core make such names of a MAC address or a GUID."""

_Change = Callable[[str, int], str]
"""From an address in bits, and how many of them are its network's, to another."""


def replaced(files: Mapping[str, str]) -> dict[str, str]:
    """`files` (path to text; a folder's path ends in `/`) with other addresses and names in paths and texts."""
    families: dict[int, set[str]] = {32: set(), 128: set()}

    def collect(bits: str, length: int) -> str:
        families[len(bits)].add(bits[:length])
        return bits

    for path, text in files.items():
        _rewritten(path, text, collect)
    seen = {width: _branches(width, found) for width, found in families.items()}

    def change(bits: str, length: int) -> str:
        return _image(bits[:length], seen[len(bits)]).ljust(len(bits), "0")

    texts = {path: _rewritten(path, text, change) for path, text in files.items()}
    numbers = _numbers(name[2] for part in (*texts, *map(_lines, texts.items())) for name in _NAME.finditer(part))

    def rename(part: str) -> str:
        return _NAME.sub(lambda name: name[1] + numbers[name[2]], part)

    return {rename(path): rename(text) if _names(path) else text for path, text in texts.items()}


def _names(path: str) -> bool:
    """Whether a file's text holds names of interfaces."""
    return path.startswith("proc/net/")


def _lines(file: tuple[str, str]) -> str:
    return file[1] if _names(file[0]) else ""


def _numbers(addresses: Iterable[str]) -> dict[str, str]:
    """For each hardware address in a name another of its length, which stands where it stood when names are sorted."""
    order = sorted(set(addresses), key=lambda text: re.sub(r"\d+", lambda digits: digits[0].zfill(9), text))
    sizes = {size: [text for text in order if len(text) == size] for size in (12, 16)}
    return {text: f"02{at:0{size - 2}d}" for size, texts in sizes.items() for at, text in enumerate(texts, 1)}


def _branches(width: int, found: Iterable[str]) -> set[str]:
    """All beginnings of the networks, and both ways wherever one leaves the way to what has a meaning."""
    seen = {bits[:end] for bits in found for end in range(1, len(bits) + 1)}
    for network in _SPECIAL:
        text, _, length = network.partition("/")
        bits = _bits(socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text))
        if len(bits) == width:
            seen |= {bits[:end] + bit for end in range(int(length)) for bit in "01"}
    return seen


def _image(bits: str, seen: set[str]) -> str:
    """`bits` with 0 wherever all that is known goes the same way."""
    other = {"0": "1", "1": "0"}
    return "".join(bit if bits[:at] + other[bit] in seen else "0" for at, bit in enumerate(bits))


def _rewritten(path: str, text: str, change: _Change) -> str:
    """The text of a file with its addresses changed. A line of a routing table that is none is left out."""
    if path == "proc/net/route":
        head, *lines = text.splitlines() or [""]
        return "\n".join([head, *filter(None, (_route(line, change) for line in lines))])
    if path == "proc/net/ipv6_route":
        return "\n".join(filter(None, (_route6(line, change) for line in text.splitlines())))
    if "/gids/" in path:
        return _GID.sub(lambda gid: _gid(gid[0], change), text)
    return text


def _route(line: str, change: _Change) -> str:
    words = line.split()
    if len(words) < 8 or not all(re.fullmatch(r"[0-9A-Fa-f]{8}", words[place]) for place in (1, 2, 7)):
        return ""
    lengths = {1: int(words[7], 16).bit_count(), 2: 32}
    for place, length in lengths.items():
        bits = _bits(int(words[place], 16).to_bytes(4, "little"))
        words[place] = f"{int.from_bytes(_data(change(bits, length)), 'little'):08X}"
    return "\t".join(words)


def _route6(line: str, change: _Change) -> str:
    words = line.split()
    whole = len(words) == 10 and all(re.fullmatch(r"[0-9A-Fa-f]{32}", words[place]) for place in (0, 2, 4))
    if not whole or not all(re.fullmatch(r"[0-9A-Fa-f]{2}", words[place]) for place in (1, 3)):
        return ""
    lengths = {0: int(words[1], 16), 2: int(words[3], 16), 4: 128}
    for place, length in lengths.items():
        words[place] = _data(_changed(_bits(bytes.fromhex(words[place])), min(length, 128), change)).hex()
    return " ".join(words)


def _gid(text: str, change: _Change) -> str:
    digits = _data(_changed(_bits(bytes.fromhex(text.replace(":", ""))), 128, change)).hex()
    return ":".join(digits[at : at + 4] for at in range(0, 32, 4))


def _changed(bits: str, length: int, change: _Change) -> str:
    """An IPv6 address; one that holds an IPv4 address as that one is changed."""
    if bits.startswith(_MAPPED) and length >= len(_MAPPED):
        return _MAPPED + change(bits[len(_MAPPED) :], length - len(_MAPPED))
    return change(bits, length)


def _bits(data: bytes) -> str:
    return f"{int.from_bytes(data):0{len(data) * 8}b}"


def _data(bits: str) -> bytes:
    return int(bits, 2).to_bytes(len(bits) // 8)
