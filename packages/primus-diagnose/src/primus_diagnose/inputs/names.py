"""What the name of a log says: whether it is one, and of which rank and node."""

from __future__ import annotations

import re

__all__ = ["is_dump", "is_kernel", "is_log", "is_noise", "node_of", "rank_of"]

_LOG = re.compile(
    r".*\.(?:log|out|err|txt|stdout|stderr|[oe]\d+)(?:\.\d+)?(?:\.gz)?"
    r"|(?:stdout|stderr|dmesg|messages|syslog|console|output|nohup|log|slurm-[^/]*|[^/]*rank[_-]?\d+)(?:\.gz)?",
    re.I,
)
_KERNEL = re.compile(r"(?:dmesg|kern|messages|syslog|journal|slurmd|slurmctld)[^/]*", re.I)
_RANK = re.compile(r"(?<![a-z])rank[_.\-= ]?(\d{1,6})(?!\d)", re.I)
_TORCHRUN = re.compile(r"attempt_\d+/(\d{1,6})/(?:stdout|stderr)\.log(?:\.gz)?$")
_TASK = re.compile(r"(?<![a-z])(?:task|proc|process)[_.\-]?(\d{1,6})(?!\d)", re.I)
_NUMBERED = re.compile(r"[._-](\d{1,6})\.(?:log|out|err|txt|stdout|stderr)(?:\.gz)?$|\.(\d{1,6})$")
_NODE = re.compile(r"(?:^|/)nodes/([^/]{1,253})/|(?<![a-z])((?:node|host|worker|master|pod)[_-]?\d{1,6})(?![\d])", re.I)
_NOISE = re.compile(
    r"(?:^|/)(?:requirements|packages|README|LICENSE|primus_env_dump|gpu_model|rocm_version)[^/]*$", re.I
)
_DUMP = re.compile(r"(?:nccl|trace|flight|fr|dump)[^/]*?_?(\d{1,6})$|(?:^|/)[^/.]*_(\d{1,6})$", re.I)


def is_log(name: str) -> bool:
    """Whether a file of that name, found in a folder, is a log."""
    return bool(_LOG.fullmatch(name))


def is_noise(path: str) -> bool:
    """Whether it is text that is certainly no log."""
    return bool(_NOISE.search(path))


def is_kernel(name: str) -> bool:
    """Whether it is a log of the kernel, the system or a daemon of Slurm."""
    return bool(_KERNEL.fullmatch(name))


def is_dump(path: str) -> bool:
    """Whether it may be a dump of NCCL's flight recorder: it ends with a rank and has no suffix."""
    return bool(_DUMP.search(path))


def rank_of(path: str, *, numbered: bool = False) -> int | None:
    """The rank that a path names; `numbered`: a mere number in the name is one, as in those beside it."""
    for pattern in (_TORCHRUN, _RANK, _TASK, *((_NUMBERED,) if numbered else ())):
        if found := pattern.findall(path):
            last = found[-1]
            return int(last if isinstance(last, str) else next(filter(None, last)))
    return None


def node_of(path: str) -> str:
    """The node that a path names."""
    match = _NODE.search(path)
    return (match[1] or match[2]) if match else ""
