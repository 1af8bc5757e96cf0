"""How Apptainer and Singularity are told to run a container: no daemon, no names, and the environment goes in as it is.

apptainer exec --no-eval --rocm --mount type=bind,source=/data,target=/data --pwd /work image.sif sh -c ...
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from primus_core.machine.facts import Facts
from primus_core.runtimes.container.mounts import Mount

__all__ = ["ENGINES", "FAILED", "command"]

ENGINES = ("apptainer", "singularity")
FAILED = 255
"""Exit code where it could not start what was asked."""
_VENDORS = {"amd": "--rocm", "nvidia": "--nv"}


def command(
    engine: str, facts: Facts, mounts: Iterable[Mount], told: Mapping[str, str], flags: Sequence[str]
) -> tuple[str, ...]:
    """Everything before the image.

    Values are not evaluated as shell text (`--no-eval`), which is else the rule there. The options that make podman
    and docker open a container to the machine have no counterpart: here it is open.
    """
    gpus = dict.fromkeys(_VENDORS[gpu.vendor] for gpu in facts.gpus if gpu.vendor in _VENDORS)
    return (
        *(engine, "exec", "--no-eval", *gpus),
        *(word for mount in mounts for word in _bind(mount)),
        *(word for name, value in told.items() for word in ("--env", f"{name}={value}")),
        *("--pwd", facts.cwd),
        *flags,
    )


def _bind(mount: Mount) -> tuple[str, ...]:
    """A volume has another name there, and the same form."""
    return tuple("--bind" if word == "--volume" else word for word in mount.option())
