"""Takes out of a machine's files what names it: serial numbers, hardware and network addresses, host names.

The same thing gets the same replacement everywhere, so that what belonged together still does; replacements are
counted, not computed, so that nothing leads back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from primus_machine.captures import addresses

__all__ = ["HOSTNAME", "anonymise"]

HOSTNAME = "captured-host"
"""What every captured machine is called."""

_HEX4 = r"[0-9a-fA-F]{4}"


def anonymise(files: Mapping[str, str]) -> dict[str, str]:
    """`files` (path to text; a folder's path ends in `/`) with what names their machine replaced, in paths too."""
    files = addresses.replaced(files)
    known: dict[tuple[str, str], str] = {}

    def replaced(kind: str, make: Callable[[int, str], str]) -> Callable[[re.Match[str]], str]:
        def one(match: re.Match[str]) -> str:
            old = match[0].lower()
            if not old.strip("0:"):
                return match[0]  # zero is no name: it says that there is none
            if (kind, old) not in known:
                known[kind, old] = make(sum(1 for other, _ in known if other == kind) + 1, old)
            return known[kind, old]

        return one

    result = {}
    for path in sorted(files):
        text = files[path]
        for where, what, kind, make in _RULES:
            if where.search(path):
                text = what.sub(replaced(kind, make), text)
        result[path] = text
    return result


_RULES: tuple[tuple[re.Pattern[str], re.Pattern[str], str, Callable[[int, str], str]], ...] = (
    # which files, what in them, what it is, what stands for the nth
    (re.compile("/kfd/"), re.compile(r"(?<=unique_id )\d+"), "gpu", lambda n, _: str(1000 + n)),
    (re.compile("/kfd/"), re.compile(r"(?<=hive_id )\d+"), "hive", lambda n, _: str(2000 + n)),
    (re.compile("/unique_id$"), re.compile(r"[0-9a-fA-F]+"), "gpu hex", lambda n, _: f"{n:016x}"),
    (
        re.compile("/nvidia/"),
        re.compile(r"(?<=GPU-)[0-9a-fA-F-]{36}"),
        "uuid",
        lambda n, _: f"00000000-0000-0000-0000-{n:012d}",
    ),
    (re.compile("guid$"), re.compile(rf"(?:{_HEX4}:){{3}}{_HEX4}"), "guid", lambda n, _: f"0200:0000:0000:{n:04x}"),
    (
        re.compile(""),
        re.compile(r"(?<![0-9a-fA-F:])(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?![0-9a-fA-F:])"),
        "mac",
        lambda n, _: f"02:00:00:00:{n >> 8 & 0xFF:02x}:{n & 0xFF:02x}",
    ),
    (re.compile(r"(?i)serial"), re.compile(r"\S+"), "serial", lambda n, _: f"serial-{n}"),
    (re.compile("/hostname$"), re.compile(r"\S+"), "host", lambda n, _: HOSTNAME),
)
