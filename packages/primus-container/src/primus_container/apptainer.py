"""The command line of Apptainer and Singularity: no daemon, no names, and the environment is passed unchanged.

apptainer exec --no-eval --rocm --mount type=bind,source=/data,target=/data --pwd /work image.sif sh -c ...
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence

from primus_container.mounts import Mount
from primus_machine.facts import Facts

__all__ = ["ENGINES", "FAILED", "command", "ignored"]

ENGINES = ("apptainer", "singularity")
FAILED = 255
"""Exit code where it could not start what was asked."""
_IGNORED = (
    *("name", "user", "network", "ipc", "device", "group-add"),
    *("ulimit", "security-opt", "cap-add", "shm-size", "log-driver"),
)
"""Options of podman and docker that have no counterpart."""
_VENDORS = {"amd": "--rocm", "nvidia": "--nv"}


def command(
    engine: str, facts: Facts, mounts: Iterable[Mount], environment: Mapping[str, str], flags: Sequence[str]
) -> tuple[str, ...]:
    """Everything before the image.

    Values are not evaluated as shell text (`--no-eval`), which is else the rule there. The options that make podman
    and docker open a container to the machine have no counterpart: here it is open.
    """
    gpus = dict.fromkeys(_VENDORS[gpu.vendor] for gpu in facts.gpus if gpu.vendor in _VENDORS)
    return (
        *(engine, "exec", "--no-eval", *gpus),
        *(word for mount in mounts for word in _bind(mount)),
        *(word for name, value in environment.items() for word in ("--env", f"{name}={value}")),
        *("--pwd", facts.cwd),
        *flags,
    )


def ignored(engine: str, given: Namespace) -> tuple[str, ...]:
    """A note on the options among `given`, those of the user, that have no effect; empty: all have one."""
    names = [f"--{name}" for name in _IGNORED if getattr(given, name.replace("-", "_"))]
    why = "it shares the network, devices and groups of the host"
    return (f"{engine} ignores {', '.join(names)}: {why}",) if names else ()


def _bind(mount: Mount) -> tuple[str, ...]:
    """A volume has another name there, and the same form."""
    return tuple("--bind" if word == "--volume" else word for word in mount.option())
