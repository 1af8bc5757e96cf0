"""What `primus env` prints: the machine, the variables, and the table that explains them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from primus_core.environment.profile_files import Profile
from primus_core.environment.resolve import of_person
from primus_core.plan.plan import Variable
from primus_machine.errors import suggestion
from primus_machine.facts import Facts, Gpu
from primus_machine.secrets.names import SECRET
from primus_machine.text import printable
from primus_machine.units import counted

__all__ = ["listing", "machine", "named_rows", "rows", "table"]

_COLUMNS = ("variable", "value", "origin", "overrode", "why", "source")
_WIDEST = (54, 26, 22, 30)
"""Of the first four columns: a list of adapters or a path is broken there. The longest name is a flag's."""
_NARROWEST = 24
_SAME_MEMORY = 1.02


def machine(facts: Facts, chain: Sequence[Profile], notes: Sequence[str], *, assumed: bool) -> str:
    """What was detected, one line each. What is not known of an `assumed` machine may be there."""
    named = [("driver", facts.driver), ("ROCm", facts.rocm), ("CUDA", facts.cuda)]
    versions = ", ".join(f"{name} {version}" for name, version in named if version)
    sizes = [(facts.cpu_count, "CPU"), (len(facts.numa_cpus), "NUMA node")]
    counts = [counted(number, what) for number, what in sizes if number or not assumed]
    nothing = ("not known", "not known") if assumed else ("no driver found", "no InfiniBand or RoCE port found")
    lines = [
        ("host", ", ".join([facts.hostname, *counts])),
        *(("GPUs", line) for line in _gpus(facts) or ["none found"]),
        ("versions", versions or nothing[0]),
        *(("network", line) for line in _ports(facts) or nothing[1:]),
        ("profile", " > ".join(profile.origin.removeprefix("profile ") for profile in chain)),
        *(("note", note) for note in notes),
    ]
    shown = [("" if label == before else label, text) for (before, _), (label, text) in pairwise([("", ""), *lines])]
    return "\n".join(f"{label:<10}{printable(text)}" for label, text in shown)


def _gpus(facts: Facts) -> list[str]:
    """One line for each kind of GPU, and where they sit."""
    kinds: dict[Gpu, list[Gpu]] = {}
    for gpu in facts.gpus:
        kind = gpu._replace(pci_address="", numa_node=-1, gpu=0, partition=0, ordinal=-1, uuid="")
        alike = next((one for one in kinds if _alike(one, kind)), kind)
        kinds.setdefault(alike, []).append(gpu)
    return [line for kind, devices in kinds.items() for line in (_kind(kind, devices), *_places(devices))]


def _alike(one: Gpu, other: Gpu) -> bool:
    """Partitions of one GPU may differ by a few MiB of memory, which the driver keeps for itself."""
    least, most = sorted((one.memory_bytes, other.memory_bytes))
    return one._replace(memory_bytes=0) == other._replace(memory_bytes=0) and most <= _SAME_MEMORY * least


def _kind(kind: Gpu, devices: Sequence[Gpu]) -> str:
    count = len({device.gpu for device in devices})
    parts = [
        f"{count} x {kind.model or f'unknown ({kind.vendor} {kind.device_id:04x})'}",
        f"{len(devices)} devices" if len(devices) != count else "",
        f"{kind.memory_bytes / 2**30:.0f} GiB each" if kind.memory_bytes else "",
        kind.architecture,
        kind.mode,
    ]
    return ", ".join(filter(None, parts))


def _places(devices: Sequence[Gpu]) -> list[str]:
    nodes: dict[int, list[str]] = {}
    for device in devices:
        nodes.setdefault(device.numa_node, []).append(device.pci_address)
    return [
        f"  {f'NUMA {node}' if node >= 0 else 'NUMA node not known'}: {', '.join(dict.fromkeys(addresses))}"
        for node, addresses in sorted(nodes.items())
    ]


def _ports(facts: Facts) -> list[str]:
    lines = []
    for port in facts.network.ports:
        parts = [
            f"{port.device}:{port.port} {port.link_layer}",
            f"{port.rate_gbps:g} Gb/s" if port.rate_gbps else "",
            "active" if port.active else "DOWN",
            port.driver,
            f"RoCE v2 GID {port.gid_index}" if port.gid_index >= 0 else "",
            f"NUMA {port.numa_node}" if port.numa_node >= 0 else "",
        ]
        lines.append(", ".join(filter(None, parts)))
    return lines


def listing(variables: Sequence[Variable]) -> str:
    """`NAME=VALUE  # origin`, one line each."""
    texts = [f"{v.name}={printable(_value(v))}" for v in variables]
    width = min(max(map(len, texts), default=0), 60)
    return "\n".join(f"{text:<{width}}  # {v.origin}" for text, v in zip(texts, variables, strict=True))


def named_rows(variables: Sequence[Variable], names: Sequence[str], environ: Mapping[str, str]) -> tuple[Variable, ...]:
    """The variables that were asked for, by name; one that nobody sets is a row, too."""
    found = {variable.name: variable for variable in variables}
    return tuple(found.get(name) or _other(name, environ, found) for name in dict.fromkeys(names))


def _other(name: str, environ: Mapping[str, str], known: Iterable[str]) -> Variable:
    if name in environ:
        return of_person(name, environ[name])
    return Variable(name, "", "", "; ".join(filter(None, ("not set", suggestion(name, known)))))


def rows(variables: Sequence[Variable]) -> list[dict[str, Any]]:
    """The variables as JSON values, without secrets."""
    return [
        {
            "name": v.name,
            "value": _value(v),
            "origin": v.origin,
            "why": v.why,
            "source": v.source,
            "secret": v.secret,
            "overrode": [{"value": SECRET if v.secret else value, "origin": origin} for value, origin in v.overrode],
            **({"flags": rows(v.flags)} if v.flags else {}),
        }
        for v in variables
    ]


def table(variables: Sequence[Variable], width: int) -> str:
    """The table, with a row for each flag of a list.

    The reasons are as wide as the terminal leaves room for; a source stays whole, to be copied.
    """
    from tabulate import tabulate

    cells = [cells for variable in variables for cells in (_cells(variable), *map(_cells, variable.flags))]
    widths = [
        min(max([len(title), *(len(line) for row in cells for line in row[column].split("\n"))]), widest)
        for column, (title, widest) in enumerate(zip(_COLUMNS, _WIDEST, strict=False))
    ]
    left = width - sum(widths) - 2 * (len(_COLUMNS) - 1)
    widths += [max(left // 2, _NARROWEST), max(left - left // 2, _NARROWEST)]
    wrapped = [[_wrapped(cell, size) for cell, size in zip(row, widths, strict=True)] for row in cells]
    return tabulate(wrapped, _COLUMNS, tablefmt="simple", disable_numparse=True)


def _wrapped(text: str, width: int) -> str:
    from textwrap import wrap

    whole = "://" in text
    lines = [wrap(line, width, break_long_words=not whole, break_on_hyphens=False) for line in text.split("\n")]
    return "\n".join(part for line in lines for part in line)


def _cells(variable: Variable) -> tuple[str, ...]:
    lost = [f"{SECRET if variable.secret else printable(value)} ({origin})" for value, origin in variable.overrode]
    source = variable.source.replace("; ", "\n")
    value = f"{len(variable.flags)} flags:" if variable.flags else printable(_value(variable))
    return (variable.name, value, variable.origin, "\n".join(lost), variable.why, source)


def _value(variable: Variable) -> str:
    return SECRET if variable.secret else variable.value
