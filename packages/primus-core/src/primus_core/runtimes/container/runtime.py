"""Run in a container of podman, docker or apptainer: the same command, with the image's system around it.

primus container --image rocm/primus:v25.10 --mount /data:/data -- train pretrain --config exp.yaml
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from primus_core import variables
from primus_core.contracts import schedulers
from primus_core.environment import placement, resolve
from primus_core.errors import RequestError, suggestion
from primus_core.host import HostRoot
from primus_core.machine.facts import Facts
from primus_core.plan.plan import Requirement, RunPlace, Step
from primus_core.plugins.contracts import OuterCall, OuterPlan
from primus_core.request.arguments import Parser
from primus_core.runtimes.container import apptainer, images
from primus_core.runtimes.container.entry import ENTRY, carried
from primus_core.runtimes.container.mounts import (
    Mount,
    given,
    is_below,
    mounts,
    own_python,
    shortest,
    volume,
    with_targets,
)
from primus_core.secrets.redaction import refuse_secrets

__all__ = ["CONTAINER", "FORWARDED", "LABEL", "LABEL_DIRECTORY", "LABEL_HOST", "container_name"]

ENGINES = ("podman", "docker", *apptainer.ENGINES)
FORWARDED = (
    *resolve.FAMILIES,
    *("HUGGING_FACE_", "WANDB_", "MLFLOW_", "NNODES", "NODE_RANK", "MASTER_", "GPUS_PER_NODE"),
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)
"""Beginnings of the names of variables that go into the container, by name: their values stand on no command line."""
LABEL, LABEL_HOST, LABEL_DIRECTORY = "primus.run", "primus.host", "primus.directory"
"""Every container of ours has them: the run's id, where it was started, the run directory. `--clean` goes by them."""

_OF_ENGINE = re.compile(r"PATH|HOME|TMPDIR|USER|(LD|XDG|CONTAINERS|DOCKER|STORAGE|REGISTRY)_.*|PYTHON.*|DBUS_.*")
"""Variables that the engine itself obeys. For the container they stand in its words: it shall not follow them."""

_SYSTEM = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/opt"),
    *("/proc", "/run", "/sbin", "/sys", "/usr", "/var"),
)
"""Folders that are the image's own, whatever a variable says."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class Container:
    """Runtime `container`."""

    name = "container"
    holds = frozenset({"direct"})
    epilog = """examples:
  primus container --image rocm/primus:v25.10 --mount /data -- train pretrain --config exp.yaml
  primus container --image IMG --env NCCL_DEBUG=INFO -e HF_TOKEN --mount /data:/data:ro -- bench gemm -M 8192
  primus container --image IMG --without device=/dev/infiniband --cpus 16 -- direct --numa -- bench gemm
  primus container --dry-run --image IMG -- train pretrain --config exp.yaml

Options that are not listed go to the engine as they are (`--cpus 16`, `--pids-limit=-1`)."""

    def add_arguments(self, parser: Parser) -> None:
        """Options of this runtime; what it does not know is the engine's."""
        several = {"action": "append", "default": [], "metavar": "VALUE"}
        parser.add_argument(
            "--image", metavar="IMAGE", default="", help="the image to run (default: by the GPUs' vendor)"
        )
        parser.add_argument("--engine", choices=(*ENGINES, "auto"), default="auto", help="default: the first one found")
        parser.add_argument(
            "--mount", action="append", default=[], metavar="PATH[:DST][:ro]", help="show a path inside (repeatable)"
        )
        parser.add_argument(
            "-v", "--volume", action="append", default=[], metavar="VOLUME", help="as the engine takes it (repeatable)"
        )
        parser.add_argument(
            "-e", "--env", action="append", default=[], metavar="K=V|FILE", help="set a variable (repeatable)"
        )
        parser.add_argument("--name", metavar="NAME", default="", help="of the container (default: after the run)")
        parser.add_argument("--user", metavar="UID[:GID]", default="", help="default: so that files are yours")
        parser.add_argument("--network", metavar="NET", default="", help="default: host")
        parser.add_argument("--ipc", metavar="IPC", default="", help="default: host")
        for name, text in _LISTS.items():
            parser.add_argument(f"--{name}", help=f"{text} (repeatable)", **several)  # type: ignore[arg-type]
        parser.add_argument(
            "--without", action="append", default=[], metavar="OPTION[=VALUE]", help="leave out a default (repeatable)"
        )
        parser.add_argument(
            "--primus",
            choices=("auto", "image", "host"),
            default="auto",
            help="which Primus runs inside: the image's, this one, or the image's where it fits (default)",
        )
        parser.add_argument("--clean", action="store_true", help="remove containers that dead runs left; takes no task")
        parser.rest_to("engine_flags", checked=False)

    def clean(self, args: argparse.Namespace, host: HostRoot, *, dry_run: bool) -> int:
        """Remove the containers of this host that dead runs left."""
        from primus_core.runtimes.container import leftovers  # it starts processes, and planning does not

        return leftovers.clean(self.engine_of(args, host.environ), host.environ, host.hostname(), dry_run=dry_run)

    def wrap(self, call: OuterCall) -> OuterPlan:
        """One process: the engine, with Primus in the container."""
        args, place, facts = call.args, call.place, call.facts
        if args.clean:
            raise RequestError(
                "--clean stands alone: it runs no task", fix="primus container --clean, and then the task"
            )
        refuse_secrets(args.engine_flags, fix="pass its name: --env NAME takes the value from your environment")
        image, note = images.chosen(args.image, facts, call.framework)
        _require_runnable(args, image, facts.cwd)
        engine = self.engine_of(args, facts.environ)
        name = args.name or container_name(place, facts)
        lock = f"{place.directory}/layers/{name}.lock"
        told = {v.name: v.value for v in call.variables if _OF_ENGINE.fullmatch(v.name) and not v.secret}
        words = _with_apptainer if engine in apptainer.ENGINES else _with_docker
        argv = (
            *words(call, engine, name, {variables.ATTENDED: lock, variables.IMAGE: image, **told}),
            f"docker://{image}" if note and engine in apptainer.ENGINES else image,
            *("sh", "-c", ENTRY, "primus", str(variables.PROTOCOL), args.primus, *carried(facts)),
            *call.inner,
        )
        step = Step(self.name, argv, facts.cwd, kind="worker", lock=lock)
        if engine in apptainer.ENGINES:
            step = replace(step, refusals=(apptainer.FAILED, 126, 127))
        else:
            leftovers = (facts.python, "-m", "primus_core.runtimes.container.leftovers")
            step = replace(step, cleanup=(*leftovers, engine, name, place.run_id))
        fix = "install podman or docker, or run without a container: primus direct -- ..."
        missing = tuple(folder for folder in call.writes if not os.path.isdir(folder))
        made = [Step("folders", ("mkdir", "-p", "--", *missing), facts.cwd)] if missing else []
        notes = (note,) if note else ()
        return OuterPlan(
            (*made, step), requires=(Requirement("command", engine, fix),), notes=notes, withheld=frozenset(told)
        )

    def engine_of(self, args: argparse.Namespace, environ: Mapping[str, str]) -> str:
        """The engine that the options name, or the first one that is here."""
        if args.engine != "auto":
            return str(args.engine)
        import shutil

        path = environ.get("PATH")
        return next((name for name in ENGINES if shutil.which(name, path=path)), ENGINES[0])


def _with_docker(call: OuterCall, engine: str, name: str, told: Mapping[str, str]) -> tuple[str, ...]:
    """What stands before the image for podman and docker, whose command lines are one."""
    labels = {LABEL: call.place.run_id, LABEL_HOST: call.facts.hostname, LABEL_DIRECTORY: call.place.directory}
    return (
        *(engine, "run", "--rm", "--name", name),
        *(word for key, value in labels.items() for word in ("--label", f"{key}={value}")),
        *_options(call.args, call.facts, engine),
        *(word for mount in _mounts(call) for word in mount.option()),
        *(word for item in told.items() for word in ("--env", "=".join(item))),
        *(word for known in _forwarded(call) if known not in told for word in ("--env", known)),
        *("--workdir", call.facts.cwd),
        *call.args.engine_flags,
    )


def _with_apptainer(call: OuterCall, engine: str, name: str, told: Mapping[str, str]) -> tuple[str, ...]:
    return apptainer.command(engine, call.facts, _mounts(call), told, call.args.engine_flags)


_LISTS = {
    "device": "a device of this machine",
    "group-add": "a group, by name or number, as this machine has it",
    "ulimit": "a limit, as memlock=-1",
    "security-opt": "a security option",
    "cap-add": "a capability",
    "shm-size": "size of /dev/shm, instead of the machine's own by --ipc host; the last counts",
    "log-driver": "what the engine does with the output, beside; the last counts",
}
"""Options of podman and docker with defaults in the packaged settings. A `?` behind a value: where it is there."""


_SINGLE = ("shm-size", "log-driver")
"""Of these, the last counts."""


def container_name(place: RunPlace, facts: Facts) -> str:
    """Of the run and the node: unique on each host, and known to whoever must remove it."""
    node = placement.said("NODE_RANK", facts.environ) or "0"
    return re.sub(r"[^A-Za-z0-9_.-]", "_", f"primus-{place.run_id}-{node}")


def _require_runnable(args: argparse.Namespace, image: str, cwd: str) -> None:
    if image.startswith("-") or not image.isprintable():
        raise RequestError(f"--image {image!r} is no image", fix="name one, as registry/name:tag")
    if args.name and not _NAME.fullmatch(args.name):
        raise RequestError(
            f"--name {args.name!r} cannot be a container's name",
            why="it takes letters, digits, `_`, `.` and `-`, and begins with a letter or digit",
            fix="leave it out, and it is called after the run",
        )
    if {"-d", "--detach"} & set(args.engine_flags):
        raise RequestError("--detach cannot be: Primus stays with its containers", fix="leave it out")
    if cwd == "/":
        raise RequestError(
            "a container cannot have the folder / of this machine as its own", fix="cd to another folder"
        )


def _options(args: argparse.Namespace, facts: Facts, engine: str) -> list[str]:
    """The engine's options: defaults, less what `--without` names and what this machine lacks."""
    found = [("network", args.network), ("ipc", args.ipc)]
    for name in _LISTS:
        values = getattr(args, name.replace("-", "_"))
        found += [(name, value) for value in (values[-1:] if name in _SINGLE else values)]
    found += _gpus(facts, engine) + _user(args.user, engine)
    _require_known(args.without, [(name, value) for name, value in found if value])
    unused = _shared_memory(args)
    found = [(name, value) for name, value in found if name != unused]
    kept = [(n, v) for n, v in found if v and not {n, f"{n}={v.rstrip('?')}"} & set(args.without)]
    return [word for name, value in _last(kept) for word in _option(name, value, facts)]


def _require_known(without: Sequence[str], found: Sequence[tuple[str, str]]) -> None:
    """Refuse what `--without` names and nobody has set: a misspelt name would leave the default in place.

    An option that only has no value here (`container: {cap-add: null}`, no GPU) is known.

    Raises:
        RequestError: with the options and values that can be left out.
    """
    names = {"network", "ipc", "user", "userns", "env", "gpus", *_LISTS, *(name for name, _ in found)}
    values = {f"{name}={value.rstrip('?')}" for name, value in found}
    for word in without:
        name = word.partition("=")[0]
        if word in names or word in values:
            continue
        of_name = sorted(value for value in values if value.startswith(f"{name}="))
        known = of_name if name in names else sorted(names)
        raise RequestError(
            f"--without {word}: there is no such default",
            why=f"known: {', '.join(known) or f'{name}, without a value'}",
            fix=suggestion(word, known) or "name one of them, or leave it out",
        )


def _shared_memory(args: argparse.Namespace) -> str:
    """Which of `--ipc` and `--shm-size` does not hold: with the machine's IPC, /dev/shm is the machine's, too.

    Raises:
        RequestError: a person asks for both.
    """
    if args.ipc != "host":
        return ""
    if not args.own.shm_size:
        return "shm-size"
    if args.own.ipc:
        raise RequestError(
            f"--shm-size {args.own.shm_size[-1]} contradicts --ipc host",
            why="with the IPC of this machine, /dev/shm is this machine's, and has its size",
            fix="leave out one of them",
        )
    return "ipc"


def _last(options: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Of several limits or security options with one name, the last, so that a person's wins over the default."""
    named = [(option, _name_of(*option)) for option in options]
    return [option for i, (option, name) in enumerate(named) if not name or name not in {n for _, n in named[i + 1 :]}]


def _name_of(option: str, value: str) -> str:
    if option not in ("ulimit", "security-opt") or (value.startswith("label") and value != "label=disable"):
        return ""
    return f"{option} {re.split('[=:]', value)[0]}"


def _option(name: str, value: str, facts: Facts) -> tuple[str, ...]:
    if value.endswith("?"):
        value = _present(name, value[:-1], facts)
    elif name == "group-add":
        value = _present(name, value, facts) or value
    return (f"--{name}", value) if value else ()


def _present(name: str, value: str, facts: Facts) -> str:
    """The value where the machine has what it means; a group as its number, for the image may not know the name."""
    if not facts.host.is_here:
        return value if name == "group-add" or _is_known(value, facts) else ""
    if name != "group-add":
        return value if facts.host.exists(value.partition(":")[0]) else ""
    import grp

    try:
        return str(grp.getgrnam(value).gr_gid)
    except KeyError:
        return ""


def _is_known(device: str, facts: Facts) -> bool:
    """Whether another machine has a device, by what its capture says: it holds no /dev."""
    if device == "/dev/infiniband":
        return bool(facts.network.ports)
    return device in ("/dev/kfd", "/dev/dri") and any(gpu.vendor == "amd" for gpu in facts.gpus)


def _gpus(facts: Facts, engine: str) -> list[tuple[str, str]]:
    """NVIDIA's runtime brings its own devices; AMD's are plain ones, in the defaults."""
    if not any(gpu.vendor == "nvidia" for gpu in facts.gpus):
        return []
    return [("gpus", "all")] if engine == "docker" else [("device", "nvidia.com/gpu=all")]


def _user(wanted: str, engine: str) -> list[tuple[str, str]]:
    """So that files written belong to the person: a root's container writes as root."""
    if wanted:
        return [("user", wanted)]
    if os.getuid() == 0:
        return []
    own = f"{os.getuid()}:{os.getgid()}"
    return (
        [("userns", "keep-id"), ("env", "HOME=/tmp")] if engine == "podman" else [("user", own), ("env", "HOME=/tmp")]
    )


def _forwarded(call: OuterCall) -> list[str]:
    """The names of the variables that go inside; the engine takes their values from its own environment."""
    named = {variable.name for variable in call.variables}
    of_person = {
        name for name in call.facts.environ if name.startswith(FORWARDED + schedulers.families())
    } - resolve.OF_SYSTEM
    return sorted(named | of_person)


def _of_person(call: OuterCall, taken: Sequence[Mount]) -> list[str]:
    """Folders and files of the person that forwarded variables name (`HF_HOME`), where nothing else is mounted."""
    seen = [mount.target for mount in taken]
    home = call.facts.environ.get("HOME", "/")
    named = [call.facts.environ[name] for name in _forwarded_families(call.facts)]
    paths = [path for path in named if os.path.isabs(path) and os.path.normpath(path) == path and os.path.exists(path)]
    return [path for path in paths if not is_below(path, (*_SYSTEM, *seen)) and not is_below(home, (path,))]


def _forwarded_families(facts: Facts) -> list[str]:
    return [
        name
        for name in sorted(facts.environ)
        if name.startswith(resolve.FAMILIES) and name not in resolve.OF_SYSTEM | resolve.OWNED
    ]


def _mounts(call: OuterCall) -> list[Mount]:
    """What must be seen inside: the folder where the person stands, the run's workspace, settings, data, Primus."""
    cwd = call.facts.cwd
    here = call.facts.host.is_known  # else it will be looked at on the node
    asked = [given(text, cwd, here=here) for text in call.args.mount]
    asked += [volume(text, here=here) for text in call.args.volume]
    carried = own_python(sys.path, (sys.prefix, sys.base_prefix)) if call.args.primus != "image" else []
    writable = (cwd, os.path.dirname(call.place.directory), *call.writes, *_of_person(call, asked))
    return mounts(asked, with_targets(writable), (*shortest(with_targets(call.reads)), *carried))


CONTAINER = Container()
