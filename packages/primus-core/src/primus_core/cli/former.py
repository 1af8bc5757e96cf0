"""Command lines of AMD's Primus and torchrun, in the words of this command (docs/coming-from.md)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Sequence
from itertools import dropwhile, takewhile

from primus_core.installed import homes
from primus_core.planning.outer_layers import OF_LAUNCHERS
from primus_core.request.former import of_torchrun, word_set
from primus_machine.secrets.redaction import redact_words

__all__ = [
    "ENGINE",
    "EXPERIMENTS",
    "JOB_SCRIPTS",
    "LAUNCHERS",
    "MODULE",
    "RUNTIMES",
    "as_program",
    "container_run",
    "is_program",
    "launched",
    "launcher_variables",
    "launching",
    "names_image",
    "of_direct",
    "program_at",
    "sbatch",
    "starts",
    "to_engine",
    "typed",
    "with_nodes",
    "with_runtimes",
    "without_launcher",
    "without_shape",
]

ENGINE = "`container` starts the engine itself; the image is an option, and a task follows `--`"
JOB_SCRIPTS = (".sh", ".sbatch", ".slurm")
_TRAINING = ("train", "pretrain", "--config", "FILE")
_OWN_SCRIPT = "or with a job script of yours, with `primus slurm srun -- ...` in it: sbatch, without `primus`"
_OF_PYTHON = "for a Python file of yours: `-- run FILE.py`"

_IMAGE = r"[a-z0-9][\w.-]*(?::\d+)?(?:/[\w.-]+)+(?::[\w.-]+)?|(?!\d+:)[a-z0-9][\w.-]*:[\w.-]+|docker://\S+|\S+\.sif"
"""Image names with a folder or a tag, `docker://NAME`, and files of Apptainer."""
PROGRAM = ".py"
MODULE = ("-m", "--module")
EXPERIMENTS = (".yaml", ".yml", ".toml")
LAUNCHERS, _LAUNCHING = word_set("launchers"), word_set("launching")
RUNTIMES = homes.names("runtimes") | {"direct"}


def with_runtimes(words: Sequence[str], find_task: Callable[[Sequence[str]], int]) -> list[str]:
    """A command line with the runtimes that AMD's launcher adds by itself where a segment begins with an option:

    RUNTIME -N 2 -- --image IMAGE -- --env A=1 -- train ...

    Options of a runtime that is there already join its own: `direct -- --env A=1 train ...`. Empty: no task follows.
    """
    named: list[list[str]] = []
    rest = list(words)
    while rest and rest[0] != "--" and (rest[0] in RUNTIMES or rest[0].startswith("-")):
        end = rest.index("--") if "--" in rest else len(rest)
        end = min(end, find_task(rest)) if named and rest[0].startswith("-") else end
        segment, rest = rest[:end], rest[end + (rest[end : end + 1] == ["--"]) :]
        whole = _with_runtime(segment, {one[0] for one in named}) if named else segment
        if whole != segment and whole[0] == named[-1][0]:
            named[-1] += whole[1:]
        else:
            named.append(whole)
    return [*(word for segment in named for word in (*segment, "--")), *rest] if rest else []


def _with_runtime(segment: Sequence[str], outer: Collection[str]) -> list[str]:
    if not segment[0].startswith("-"):
        return list(segment)
    options = {word.partition("=")[0] for word in segment}
    runtime = "container" if word_set("of_container") & options and "container" not in outer else "direct"
    return [runtime, *map(_spelt, segment)]


def _spelt(word: str) -> str:
    """`--log_file=x` as options are spelt here; a value stays as it is."""
    flag, equals, value = word.partition("=")
    return f"{flag.replace('_', '-')}{equals}{value}" if flag.startswith("--") else word


def launcher_variables(words: Sequence[str], runtime: str = "direct") -> str:
    """What torchrun's options among `words` say, as variables before a command: `GPUS_PER_NODE=8 `."""
    found = without_launcher(["direct", *words])[0]
    return found if runtime == "direct" else "".join(re.findall(r"GPUS_PER_NODE=\S+ ", found))  # it places the nodes


def without_launcher(words: Sequence[str]) -> tuple[str, list[str]]:
    """What torchrun's options among those of runtimes say, as variables before a command, and `words` without them."""
    variables, kept, rest = dict[str, str](), list[str](), list(words)
    inside, total = "", ""
    while rest:
        word = rest.pop(0)
        begins = word in RUNTIMES and not inside
        inside = word if begins or word == "direct" else "" if word in ("--", *MODULE) or is_program(word) else inside
        flag, equals, value = word.partition("=")
        flag = flag.replace("_", "-")
        known = of_torchrun() if inside == "direct" else OF_LAUNCHERS if inside else ()
        if flag not in known:
            kept.append(_spelt(word) if inside == "direct" else word)
        elif flag != "--standalone":
            value = value if equals else rest.pop(0) if rest and rest[0] != "--" else "N"
            total = value if flag in word_set("of_all_nodes") else total
            found = _variables(flag, value)
            variables |= {name: found[name] for name in found if inside == "direct" or name == "GPUS_PER_NODE"}
    nodes = variables.get("NNODES", "1")
    if total.isdecimal() and nodes != "1":
        variables["GPUS_PER_NODE"] = str(int(total) // int(nodes)) if nodes.isdecimal() else f"{total}/{nodes}"
    # Nodes that no scheduler starts find their rank at a rendezvous of torchrun; here, a variable says it.
    if [word for word in words if word not in ("--dry-run", "--debug")][:1] == ["direct"] and nodes != "1":
        variables |= {"NODE_RANK": "N", "MASTER_ADDR": "HOST"} | variables
    return "".join(f"{name}={shlex.quote(value)} " for name, value in variables.items()), kept


def of_direct(words: Sequence[str]) -> tuple[Sequence[str], list[str]]:
    """The option of torchrun among `words` that `direct` has, too; and the flags that say nothing here."""
    variables, [_, *rest] = without_launcher(["direct", *words])
    lost = [word for word in rest if word.startswith("-")]
    lost += [word for word in words if re.fullmatch(r"(--nnodes=)?\d+:\d+", word)]  # as many nodes as come
    if "NNODES=" in variables and "NNODES=1 " not in variables:  # one node cannot start again without the others
        return (), lost
    for at, word in enumerate(rest):
        flag, _, value = word.partition("=")
        if flag == "--max-restarts":
            return (flag, value or "".join(rest[at + 1 : at + 2])), [one for one in lost if one != word]
    return (), lost


def without_shape(words: Sequence[str], *more: str) -> tuple[str, list[str]]:
    """Flags of Slurm without `more`, and those whose place Primus takes: it writes the script, and starts the ranks."""
    variables, kept, rest, total = "", [], list(words), ""
    while rest:
        flag, equals, value = rest.pop(0).partition("=")
        if flag in ("--ntasks-per-node", "--tasks-per-node", "--wrap", "-n", "--ntasks", *more):
            value = value if equals else rest.pop(0) if rest else ""
            total = value if flag in ("-n", "--ntasks") else total
            variables += f"GPUS_PER_NODE={shlex.quote(value)} " if flag.endswith("-per-node") else ""
        else:
            kept.append(f"{flag}{equals}{value}")
    named = re.search(r"(?:^| )(?:-N ?|--nodes[= ])(\d+)(?: |$)", " ".join(kept))
    if total.isdecimal() and not variables and int(total) % (nodes := int(named[1]) if named else 1) == 0:
        variables = f"GPUS_PER_NODE={int(total) // nodes} "
    return variables, kept


def sbatch(words: Sequence[str]) -> str:
    """What to do instead of `sbatch OPTIONS job.sh`: the options are those that Primus takes, too."""
    before = takewhile(lambda word: not word.endswith(JOB_SCRIPTS), words)
    options = [word for word in before if word not in ("sbatch", "srun", "--dry-run")]  # which is added again
    variables, kept = without_shape(options, "-a", "--array")  # a job script of one's own may be an array
    wrapped = (re.findall(r"--wrap[=\0]([^\0]*)", "\0".join(words)) or [""])[0].split()
    task = ("run", *wrapped[program_at(wrapped) :]) if program_at(wrapped) < len(wrapped) else _TRAINING
    return f"{variables}{_command('slurm', 'sbatch', *(kept or ('-N', '2')), '--', *task)}\n{_OF_PYTHON}; {_OWN_SCRIPT}"


def _variables(flag: str, value: str) -> dict[str, str]:
    if flag == "--rdzv-endpoint":
        host, _, port = value.partition(":")
        return {**_variables("--master-addr", host), **_variables("--master-port", port)}
    name = of_torchrun()[flag]
    if flag in ("-H", "--host", "--hosts"):  # of mpirun: `a:8,b:8`
        hosts = [host.partition(":")[0] for host in value.split(",")]
        return {"NNODES": str(len(hosts)), "MASTER_ADDR": hosts[0]} if len(hosts) > 1 else {}
    if name == "GPUS_PER_NODE" and "," in value:  # these GPUs, not so many; HIP reads it, too
        name = "CUDA_VISIBLE_DEVICES"
    if name == "CUDA_VISIBLE_DEVICES":  # of DeepSpeed: `localhost:0,1`
        value = "" if "@" in value else value.rpartition(":")[2]
    if name == "GPUS_PER_NODE":  # `A100:8`
        value = value.rpartition(":")[2]
        value = value if value.isdecimal() or value == "N" else ""
    if name == "NNODES":  # `1:4` is as many as come
        value = "N" if flag == "--hostfile" else value.rpartition(":")[2]
    return {name: value} if name and value and value not in word_set("any") else {}


def as_program(words: Sequence[str]) -> str:
    """`direct --script FILE -- words`, or `--script FILE words`, as the task `run`; empty: it is neither."""
    end = words.index("--") if "--" in words else len(words)
    before, after = list(words[:end]), list(words[end + 1 :])
    if "--script" not in before[:-1]:
        return ""
    at = before.index("--script")
    if "--" not in words:
        before, after = before[: at + 2], before[at + 2 :]
    return _command(*before[:at], *before[at + 2 :], "--", "run", before[at + 1], *after)


def is_program(word: str) -> bool:
    """Whether a word names a Python file; a command in quotes (`'python t.py'`) does not."""
    return word.endswith(PROGRAM) and " " not in word


def program_at(words: Sequence[str]) -> int:
    """Where a Python file or `-m MODULE` begins, of a module that starts no other; behind all words: nowhere."""
    modules = [at for at, word in enumerate(words[:-1]) if word in MODULE and words[at + 1] not in _LAUNCHING]
    return min([*modules, *(at for at, word in enumerate(words) if is_program(word))], default=len(words))


def launching(words: Sequence[str]) -> Sequence[str]:
    """The words before a program: a launcher of others, and its options. Those of Python itself are none."""
    at, files = program_at(words), word_set("hostfiles")
    if at == len(words):
        return ()
    begin = next((number for number, word in enumerate(words[:at]) if word in _LAUNCHING), 0)
    end = at if begin or not words[0].startswith("python") else 1
    return ["--hostfile" if word in files else word for word in words[begin:end]]


def launched(words: Sequence[str]) -> Sequence[str]:
    """The launcher of others that a person named among `words`, and its options."""
    return launching([*dropwhile(lambda word: word not in LAUNCHERS, words)])


def with_nodes(words: Sequence[str]) -> Sequence[str]:
    """`words`; where those for Slurm name no nodes, with as many as the launcher of others behind them was to take."""
    front = [*takewhile(lambda word: word not in LAUNCHERS, words)]
    found = re.search(r"NNODES=(\d+) ", launcher_variables(launched(words)))
    if not found or not {"srun", "sbatch"} & {*front} or re.search(r" (?:-N|--nodes)", " ".join(front)):
        return words
    at = len(front) - (front[-1:] == ["--"])
    return [*front[:at], "-N", found[1], *words[at:]]


def to_engine(words: Sequence[str]) -> Sequence[str]:
    """What is typed as to the engine: `run IMAGE`, `-- docker run --gpus all IMAGE`; empty: nothing is."""
    rest = [*dropwhile(lambda word: word in ("--", "docker", "podman"), words)]
    is_ours = any(word.endswith((PROGRAM, *EXPERIMENTS)) for word in rest[1:2])
    return rest[1:] if rest[:1] == ["run"] and not is_ours else ()


def starts(words: Sequence[str]) -> bool:
    """Whether the words start a container in an engine's own form; `docker exec` does not, `apptainer exec` does."""
    return "".join(words[1:2]) in (("run", "exec") if homes.meant(words[0])[1:] else ("run",))


def names_image(words: Sequence[str]) -> bool:
    """Whether one of the words looks like the name of an image."""
    return any(re.fullmatch(_IMAGE, word) for word in words)


def container_run(words: Sequence[str], engine: Sequence[str] = ()) -> str:
    """The command for `docker run OPTIONS IMAGE WORDS`, with the options that choose its `engine`.

    Nobody here knows which options take a value. So the image is the first word, or the one before a program that is
    started, or before the `--` of a task.
    """
    if "primus" in words[1:-1]:  # `docker run IMAGE primus direct -- run FILE`
        at = words.index("primus")
        options = [word for word in words[: at - 1] if word not in word_set("of_docker")]
        return _command("container", *engine, "--image", words[at - 1], *options, "--", *words[at + 1 :])
    if "--image" in words[:-1]:  # `container run --image IMAGE -- run FILE`
        named = words.index("--image")
        kept = [*words[:named], *words[named + 2 :]]
        begin = next((at for at, word in enumerate(kept) if word == "--" or is_program(word)), len(kept))
        words = [*kept[:begin], words[named + 1], *kept[begin:]]
    places = (at for at, word in enumerate(words) if at and (word == "--" or word in LAUNCHERS or is_program(word)))
    at = next(places, 0)
    behind = at or next((at for at, word in enumerate(words, 1) if re.fullmatch(_IMAGE, word)), int(len(words) == 1))
    options = [
        word
        for word in words[: max(behind - 1, 0)]
        if word not in word_set("of_docker") and not word.startswith("--gpus=")
    ]
    if "--gpus" in options:  # the runtime gives those that are here
        del options[options.index("--gpus") : options.index("--gpus") + 2]
    container = ("container", *engine, "--image", words[behind - 1] if behind else "IMAGE", *options, "--")
    if not at:
        return _command(*container, *_TRAINING)
    begin = at + program_at(words[at:])
    if words[at] == "--":
        return _command(*container, *words[at + 1 :])
    program = words[begin:] or ["train.py"]
    return launcher_variables(words[at:begin]) + _command(*container, "run", *program)


def typed(words: Sequence[str]) -> str:
    """Words as one types them, without the values of secrets."""
    return shlex.join(redact_words(words))


def _command(*words: str) -> str:
    return f"primus {typed(words)}"
