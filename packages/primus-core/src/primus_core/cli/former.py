"""Command lines of AMD's Primus and torchrun, in the words of this command (docs/coming-from.md)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import dropwhile

from primus_core.installed import homes
from primus_core.request.former import of_torchrun

__all__ = [
    "ENGINE",
    "JOB_SCRIPTS",
    "LAUNCHERS",
    "SBATCH",
    "as_program",
    "container_run",
    "launcher_variables",
    "launching",
    "to_engine",
    "with_runtimes",
    "without_launcher",
]

ENGINE = "`container` starts the engine itself; the image is an option, and a task follows `--`"
JOB_SCRIPTS = (".sh", ".sbatch", ".slurm")
SBATCH = (
    "primus slurm sbatch -N 2 -- train pretrain --config FILE\n"
    "or with a job script of yours, with `primus slurm srun -- ...` in it: sbatch, without `primus`"
)

_ALONE = ("--standalone",)
"""Those of torchrun that take no value."""
_ANY = ("auto", "gpu", "cpu")
"""Values that leave the choice to torchrun, and to us."""
_PROGRAM = ".py"
_EXPERIMENTS = (".yaml", ".yml", ".toml")
LAUNCHERS = ("torchrun", "mpirun", "mpiexec", "deepspeed", "accelerate", "python", "python3")
_OF_DOCKER = ("-it", "-ti", "-i", "-t", "-d", "--rm", "--interactive", "--tty", "--detach")
"""What the runtime `container` does by itself, or has no use for."""
_RUNTIMES = homes.names("runtimes") | {"direct"}
_OF_CONTAINER = frozenset(
    {
        *("--image", "--volume", "-v", "--mount", "--device", "--shm-size", "--user", "--name", "--network", "--ipc"),
        *("--cap-add", "--cpus", "--memory", "--gpus", "--engine"),
    }
)


def with_runtimes(words: Sequence[str]) -> str:
    """A command line with the runtimes that AMD's launcher adds by itself where a segment begins with an option:

    RUNTIME -N 2 -- --image IMAGE -- --env A=1 -- train ...
    """
    named: list[list[str]] = []
    rest = list(words)
    while rest and rest[0] != "--" and (rest[0] in _RUNTIMES or rest[0].startswith("-")):
        end = rest.index("--") if "--" in rest else len(rest)
        named.append(_with_runtime(rest[:end], {segment[0] for segment in named}) if named else rest[:end])
        rest = rest[end + 1 :]
    return _command(*(word for segment in named for word in (*segment, "--")), *rest)


def _with_runtime(segment: Sequence[str], outer: Collection[str]) -> list[str]:
    if not segment[0].startswith("-"):
        return list(segment)
    options = {word.partition("=")[0] for word in segment}
    runtime = "container" if _OF_CONTAINER & options and "container" not in outer else "direct"
    return [runtime, *map(_spelt, segment)]


def _spelt(word: str) -> str:
    """`--log_file=x` as options are spelt here; a value stays as it is."""
    flag, equals, value = word.partition("=")
    return f"{flag.replace('_', '-')}{equals}{value}" if flag.startswith("--") else word


def launcher_variables(words: Sequence[str]) -> str:
    """What torchrun's options among `words` say, as variables before a command: `GPUS_PER_NODE=8 `."""
    return without_launcher(["direct", *words])[0]


def without_launcher(words: Sequence[str]) -> tuple[str, list[str]]:
    """What torchrun's options among those of `direct` say, as variables before a command, and `words` without them."""
    variables, kept, rest = "", [], list(words)
    inside = False
    while rest:
        word = rest.pop(0)
        inside = word == "direct" or (inside and word != "--" and not word.endswith(_PROGRAM))
        flag, equals, value = word.partition("=")
        flag = flag.replace("_", "-")
        if not inside or flag not in of_torchrun():
            kept.append(word)
        elif flag not in _ALONE:
            variables += _variables(flag, value if equals else rest.pop(0) if rest else "")
    return variables, kept


def _variables(flag: str, value: str) -> str:
    import shlex

    if flag == "--rdzv-endpoint":
        host, _, port = value.partition(":")
        return _variables("--master-addr", host) + _variables("--master-port", port)
    name = of_torchrun()[flag]
    if name == "GPUS_PER_NODE" and "," in value:  # these GPUs, not so many; HIP reads it, too
        name = "CUDA_VISIBLE_DEVICES"
    if name == "NNODES":  # `1:4` is as many as come
        value = value.rpartition(":")[2]
    return f"{name}={shlex.quote(value)} " if name and value and value not in _ANY else ""


def as_program(words: Sequence[str]) -> str:
    """`direct --script FILE -- words` as the task `run`; empty: no `--script` stands there.

    Without a `--`, the program's words begin behind FILE.
    """
    end = words.index("--") if "--" in words else len(words)
    before, after = list(words[:end]), list(words[end + 1 :])
    if "--script" not in before[:-1]:
        return ""
    at = before.index("--script")
    if "--" not in words:
        before, after = before[: at + 2], before[at + 2 :]
    return _command(*before[:at], *before[at + 2 :], "--", "run", before[at + 1], *after)


def launching(words: Sequence[str]) -> Sequence[str]:
    """The words before a Python file: a launcher of others, and its options."""
    return words[: next((at for at, word in enumerate(words) if word.endswith(_PROGRAM)), 0)]


def to_engine(words: Sequence[str]) -> Sequence[str]:
    """What is typed as to the engine: `run IMAGE`, `-- docker run --gpus all IMAGE`; empty: nothing is."""
    rest = [*dropwhile(lambda word: word in ("--", "docker", "podman"), words)]
    is_program = any(word.endswith((_PROGRAM, *_EXPERIMENTS)) for word in rest[1:2])
    return rest[1:] if rest[:1] == ["run"] and not is_program else ()


def container_run(words: Sequence[str]) -> str:
    """The command for `docker run OPTIONS IMAGE WORDS`. Nobody here knows which options take a value.

    So the image is the first word, or the one before a program that is started.
    """
    at = next((at for at, word in enumerate(words) if at and (word in LAUNCHERS or word.endswith(_PROGRAM))), 0)
    if not at:
        image = words[0] if words and not words[0].startswith("-") else "IMAGE"
        return _command("container", "--image", image, "--", "train", "pretrain", "--config", "FILE")
    begin = next((begin for begin, word in enumerate(words) if word.endswith(_PROGRAM)), len(words))
    options = [word for word in words[: at - 1] if word not in _OF_DOCKER]
    if "--gpus" in options:  # the runtime gives those that are here
        del options[options.index("--gpus") : options.index("--gpus") + 2]
    program = words[begin:] or ["train.py"]
    return launcher_variables(words[at:begin]) + _command(
        *("container", "--image", words[at - 1], *options, "--", "run", *program)
    )


def _command(*words: str) -> str:
    import shlex

    from primus_machine.secrets.redaction import redact_words

    return shlex.join(["primus", *redact_words(words)])
