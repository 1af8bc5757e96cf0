"""Run in a container, with podman, docker or apptainer.

primus container --image docker.io/rocm/primus:v26.5 --mount /data:/data -- train pretrain --config exp.yaml
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence

from primus_container import apptainer, images, users
from primus_container.entry import ENTRY, arguments
from primus_container.labels import LABEL, LABEL_DIRECTORY, LABEL_HOST
from primus_container.misspelt import Misspelt
from primus_container.mounts import Mount, given, is_below, mounts, own_python, shortest, volume, with_targets
from primus_core import variables
from primus_core.contracts import schedulers
from primus_core.environment import placement, resolve
from primus_core.plan.plan import Requirement, RunPlace, Step
from primus_core.plugins.outer import OuterCall, OuterPlan
from primus_core.request.arguments import Parser, flags_of
from primus_machine.errors import RequestError, suggestion
from primus_machine.facts import Facts
from primus_machine.host import HostRoot
from primus_machine.secrets.redaction import refuse_secrets

__all__ = ["CONTAINER", "FORWARDED", "container_name"]

ENGINES = ("podman", "docker", *apptainer.ENGINES)
FORWARDED = (
    *resolve.FAMILIES,
    *("HUGGING_FACE_", "WANDB_", "MLFLOW_", "NNODES", "NODE_RANK", "MASTER_", "GPUS_PER_NODE"),
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)
"""Beginnings of the names of variables that go into the container, by name: their values stand on no command line."""

_OF_ENGINE = re.compile(r"PATH|HOME|TMPDIR|USER|(LD|XDG|CONTAINERS|DOCKER|STORAGE|REGISTRY)_.*|PYTHON.*|DBUS_.*")
"""Variables that the engine itself obeys. For the container they stand in its words: it shall not follow them."""

_SYSTEM = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/opt"),
    *("/proc", "/run", "/sbin", "/sys", "/usr", "/var"),
)
"""Folders that are the image's own, whatever a variable says."""
_REFUSALS = (125, 126, 127)
"""Exit codes with which podman and docker say that they could not start what was asked."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class Container:
    """Runtime `container`."""

    name = "container"
    holds = frozenset({"direct"})
    epilog = """examples:
  primus container --image docker.io/rocm/primus:v26.5 --mount /data -- train pretrain --config exp.yaml
  primus container --image IMG --env NCCL_DEBUG=INFO -e HF_TOKEN --mount /data:/data:ro -- bench gemm -M 8192
  primus container --image IMG --without device=/dev/infiniband --cpus 16 -- direct --numa -- bench gemm -M 8192
  primus container --dry-run --image IMG -- train pretrain --config exp.yaml

Primus passes all other options to the engine unchanged (`--cpus 16`, `--pids-limit=-1`)."""

    def add_arguments(self, parser: Parser) -> None:
        """Options of this runtime; what it does not know is the engine's."""
        several = {"action": "append", "default": [], "metavar": "VALUE"}
        parser.add_argument("--image", metavar="IMAGE", default="", help="the image (default: by GPU vendor)")
        parser.add_argument(
            "--engine", choices=(*ENGINES, "auto"), default="auto", help="the engine (default: the first one found)"
        )
        parser.add_argument(
            "--mount",
            action="append",
            default=[],
            metavar="PATH[:DST][:ro]",
            help="mount a path of the host (repeatable)",
        )
        parser.add_argument(
            "-v",
            "--volume",
            action="append",
            default=[],
            metavar="VOLUME",
            help="mount a volume, in the engine's syntax (repeatable)",
        )
        parser.add_argument(
            "-e", "--env", action="append", default=[], metavar="K=V|FILE", help="set a variable (repeatable)"
        )
        parser.add_argument("--name", metavar="NAME", default="", help="name of the container (default: from the run)")
        parser.add_argument(
            "-u",
            "--user",
            metavar="UID[:GID]",
            default="",
            help="user in the container (default: you, so that its files are yours)",
        )
        parser.add_argument("--network", metavar="NET", default="", help="network (default: host)")
        parser.add_argument("--ipc", metavar="IPC", default="", help="IPC namespace (default: host)")
        for name, text in _LISTS.items():
            how = "the last one wins" if name in _SINGLE else "repeatable"
            parser.add_argument(f"--{name}", help=f"{text} ({how})", **several)  # type: ignore[arg-type]
        parser.add_argument(
            "--without", action="append", default=[], metavar="OPTION[=VALUE]", help="remove a default (repeatable)"
        )
        parser.add_argument(
            "--primus",
            choices=("auto", "image", "host"),
            default="auto",
            help="which Primus runs inside: image, host, or auto: the image's if it is compatible (default)",
        )
        parser.add_argument("--clean", action="store_true", help="remove containers left by dead runs; takes no task")
        parser.rest_to("engine_flags", checked=False)

    def clean(self, args: argparse.Namespace, host: HostRoot, *, dry_run: bool) -> int:
        """Remove the containers of this host that dead runs left."""
        from primus_container import leftovers  # it starts processes, and planning does not

        return leftovers.clean(self.engine_of(args, host.environ), host.environ, host.hostname(), dry_run=dry_run)

    def wrap(self, call: OuterCall) -> OuterPlan:
        """One process: the engine, with Primus in the container."""
        args, place, facts = call.args, call.place, call.facts
        if args.clean:
            raise RequestError(
                "--clean takes no task", fix="type primus container --clean, and then the command with the task"
            )
        refuse_secrets(args.engine_flags, fix="pass its name: --env NAME uses the value of your environment")
        images.refuse_lone_word(args.image, args.engine_flags)
        image, note = images.chosen(args.image, facts, call.framework)
        _require_runnable(args, image, facts.cwd)
        engine = self.engine_of(args, facts.environ)
        name = args.name or container_name(place, facts)
        lock = f"{place.directory}/layers/{name}.lock"
        is_apptainer = engine in apptainer.ENGINES
        user = users.User(()) if is_apptainer else _user(call, engine)
        outside = {v.name: v.value for v in call.variables if _OF_ENGINE.fullmatch(v.name) and not v.secret}
        if user.home and not facts.environ.get(variables.CACHE):  # yours is not for others to write in
            outside[variables.CACHE] = f"{user.home}/.cache/primus"
            own = (resolve.cache(facts.environ),)
            call = call._replace(writes=tuple(path for path in call.writes if not is_below(path, own)))
        words = _with_apptainer if is_apptainer else _with_docker
        argv = (
            *words(call, engine, name, {variables.ATTENDED: lock, variables.IMAGE: image, **outside}),
            f"docker://{image}" if note and is_apptainer else image,
            *("sh", "-c", ENTRY, "primus", *arguments(facts, args.primus)),
            *call.inner,
        )
        parser = Parser(prog="primus container")
        self.add_arguments(parser)
        misspelt = Misspelt(engine, args.engine_flags, flags_of(parser))
        advice = misspelt.advice(user.advice(engine, image) or images.advice(engine, image))
        step = Step(self.name, argv, facts.cwd, kind="worker", lock=lock, advice=advice)
        if is_apptainer:
            step = step._replace(refusals=(apptainer.FAILED, 126, 127))
        else:
            leftovers = (facts.python, "-m", "primus_container.leftovers")
            step = step._replace(cleanup=(*leftovers, engine, name, place.run_id), refusals=_REFUSALS)
        fix = "install podman or docker, or run without a container: primus direct -- ..."
        missing = tuple(folder for folder in call.writes if not os.path.isdir(folder))
        made = [Step("folders", ("mkdir", "-p", "--", *missing), facts.cwd)] if missing else []
        made += [Step("owner", words, facts.cwd) for words in user.steps(place.directory, missing)]
        notes = (
            *([note] if note else ()),
            *misspelt.notes(),
            *(apptainer.ignored(engine, args.own) if is_apptainer else ()),
            *(
                f"{path} is not writable for the user {user.owner}"
                for path in user.closed(dict.fromkeys((*call.writes, *_of_person(call, []))))
            ),
        )
        return OuterPlan(
            (*made, step), requires=(Requirement("command", engine, fix),), notes=notes, withheld=frozenset(outside)
        )

    def engine_of(self, args: argparse.Namespace, environ: Mapping[str, str]) -> str:
        """The engine that the options name, or the first one that is here."""
        if args.engine != "auto":
            return str(args.engine)
        import shutil

        path = environ.get("PATH")
        return next((name for name in ENGINES if shutil.which(name, path=path)), ENGINES[0])


def _with_docker(call: OuterCall, engine: str, name: str, outside: Mapping[str, str]) -> tuple[str, ...]:
    """What stands before the image for podman and docker, whose command lines are one."""
    labels = {LABEL: call.place.run_id, LABEL_HOST: call.facts.hostname, LABEL_DIRECTORY: call.place.directory}
    return (
        *(engine, "run", "--rm", "--name", name),
        *(word for key, value in labels.items() for word in ("--label", f"{key}={value}")),
        *_options(call, engine),
        *(word for mount in _mounts(call) for word in mount.option()),
        *(word for item in outside.items() for word in ("--env", "=".join(item))),
        *(word for known in _forwarded(call) if known not in outside for word in ("--env", known)),
        *("--workdir", call.facts.cwd),
        *call.args.engine_flags,
    )


def _with_apptainer(call: OuterCall, engine: str, name: str, outside: Mapping[str, str]) -> tuple[str, ...]:
    return apptainer.command(engine, call.facts, _mounts(call), outside, call.args.engine_flags)


_LISTS = {
    "device": "add a device of this machine",
    "group-add": "add a group of this machine, by name or number",
    "ulimit": "set a limit, such as memlock=-1",
    "security-opt": "set a security option",
    "cap-add": "add a capability",
    "shm-size": "give the container its own /dev/shm of this size, instead of --ipc host",
    "log-driver": "set the log driver of the engine",
}
"""Options of podman and docker with defaults in the packaged settings. A `?` behind a value: where it is there."""


_SINGLE = ("shm-size", "log-driver")
"""Of these, the last counts."""


def container_name(place: RunPlace, facts: Facts) -> str:
    """Of the run and the node: unique on each host, and known to whoever must remove it."""
    node = placement.given("NODE_RANK", facts.environ) or "0"
    return re.sub(r"[^A-Za-z0-9_.-]", "_", f"primus-{place.run_id}-{node}")


def _require_runnable(args: argparse.Namespace, image: str, cwd: str) -> None:
    if image.startswith("-") or not image.isprintable():
        raise RequestError(f"--image {image!r} is not an image", fix="write it as registry/name:tag")
    if args.name and not _NAME.fullmatch(args.name):
        raise RequestError(
            f"--name {args.name!r} cannot be a container's name",
            why="it may contain letters, digits, `_`, `.` and `-`, and must begin with a letter or digit",
            fix="remove it: the default is the name of the run",
        )
    if {"-d", "--detach"} & set(args.engine_flags):
        raise RequestError("--detach is not supported: Primus watches its containers", fix="remove it")
    if cwd == "/":
        raise RequestError(
            "the current folder is /, which cannot be mounted into a container", fix="cd to another folder"
        )


def _user(call: OuterCall, engine: str) -> users.User:
    """As whom the container runs.

    Raises:
        RequestError: as somebody who cannot write what the run writes.
    """
    workspace = os.path.dirname(call.place.directory)
    user = users.chosen(call.args.user, engine, workspace)
    user.require_way(call.facts.cwd, workspace)
    return user


def _options(call: OuterCall, engine: str) -> list[str]:
    """The engine's options: defaults, less what `--without` names and what this machine lacks."""
    args, facts = call.args, call.facts
    found = [("network", args.network), ("ipc", args.ipc)]
    for name in _LISTS:
        values = getattr(args, name.replace("-", "_"))
        found += [(name, value) for value in (values[-1:] if name in _SINGLE else values)]
    found += [*_gpus(facts, engine), *_user(call, engine).options]
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
            fix=suggestion(word, known) or "use one of them, or remove it",
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
            why="with --ipc host, the container uses the host's /dev/shm, whose size is fixed",
            fix="remove one of them",
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
    here = call.facts.host.is_here  # else it will be looked at on the node
    asked = [given(text, cwd, here=here) for text in call.args.mount]
    asked += [volume(text, here=here) for text in call.args.volume]
    carried = own_python(sys.path, (sys.prefix, sys.base_prefix)) if call.args.primus != "image" else []
    writable = (cwd, os.path.dirname(call.place.directory), *call.writes, *_of_person(call, asked))
    return mounts(asked, with_targets(writable), (*shortest(with_targets(call.reads)), *carried))


CONTAINER = Container()
