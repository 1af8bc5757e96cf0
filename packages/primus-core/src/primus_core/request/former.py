"""What AMD's Primus and torchrun call otherwise (docs/coming-from.md): looked up when a word is not known."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

__all__ = ["as_program", "instead", "launcher_variables", "with_runtimes", "without_launcher"]

_NO_PROGRAM = "there is none yet; a program of yours: primus direct -- run FILE [words]"
_TORCHRUN = {
    "--nproc-per-node": "GPUS_PER_NODE=N before the command",
    "--nnodes": "NNODES=N before the command, or: primus slurm srun -N 2 -- ...",
    "--node-rank": "NODE_RANK=N before the command",
    "--master-addr": "MASTER_ADDR=HOST before the command",
    "--master-port": "MASTER_PORT=N before the command",
    "--rdzv-endpoint": "MASTER_ADDR=HOST MASTER_PORT=N before the command",
    **dict.fromkeys(("--rdzv-backend", "--rdzv-id", "--rdzv-conf"), "leave it out: nodes meet at MASTER_ADDR"),
    "--standalone": "leave it out: one node is the default",
}
_ALONE = ("--standalone",)
"""Those of torchrun that take no value."""
_ANY = ("auto", "gpu", "cpu")
"""Values that leave the choice to torchrun, and to us."""
_PROGRAM = ".py"
_WORDS: Mapping[str, Mapping[str, str]] = {
    "primus": {
        "deps": "nothing is to be synchronized: backends are packages, as primus-megatron; see `primus plugins`",
        "data": "backends prepare data before they train: `data.text` in the experiment",
        "node_smoke": "primus direct -- preflight --level perf",
        "projection": "primus models show MODEL: parameters and FLOPs; primus config validate FILE --nodes 8",
    },
    "direct": {
        "--script": "primus direct -- run FILE [words]",
        "--silent": "leave it out; `primus logs RUN` has all of the text, and > FILE keeps it off the terminal",
        **_TORCHRUN,
        **{f"--{flag[2:].replace('-', '_')}": instead for flag, instead in _TORCHRUN.items()},
    },
    "preflight": {
        "--quick": "leave it out: --level quick is the default",
        "--perf-test": "--level perf",
        "--plot": "--output preflight.html draws what was measured",
        "--dump-path": "--output FOLDER/preflight.md",
        "--report-file-name": "--output NAME.md",
        "--disable-pdf": "leave it out: no PDF is written",
        "--dist-timeout-sec": "--wait SECONDS",
    },
    "bench": dict.fromkeys(("attention", "strided-allgather", "gemm-dense", "gemm-deepseek"), _NO_PROGRAM)
    | {"rccl": "primus slurm srun -N 2 -- preflight --level full measures collectives between nodes"},
    "train": {
        "data_path": "the experiment names its data; Hugging Face's folder: --env HF_HOME=FOLDER before the `--`",
        "backend_path": "the backend is the installed package",
        "export_config": "primus config show FILE --resolved",
    },
}
"""Of each place (a runtime, a task; `primus`: where one of them stands), the words that it does not know here."""
_SAME = {"benchmark": "bench"}

_RUNTIMES = ("slurm", "container", "direct")
_OF_CONTAINER = frozenset(
    {
        *("--image", "--volume", "-v", "--mount", "--device", "--shm-size", "--user", "--name", "--network", "--ipc"),
        *("--cap-add", "--cpus", "--memory", "--gpus", "--engine"),
    }
)


def instead(place: str, word: str) -> str:
    """What to type instead of a word of AMD's Primus; empty: it never was one."""
    name = place.rpartition(" ")[2]
    return _WORDS.get(_SAME.get(name, name), {}).get(word.partition("=")[0], "")


def with_runtimes(words: Sequence[str]) -> str:
    """A command line with the runtimes that AMD's launcher adds by itself where a segment begins with an option:

    slurm -N 2 -- --image IMAGE -- --env A=1 -- train ...
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
    said, kept, rest = "", [], list(words)
    inside = False
    while rest:
        word = rest.pop(0)
        inside = word == "direct" or (inside and word != "--" and not word.endswith(_PROGRAM))
        flag, equals, value = word.partition("=")
        flag = flag.replace("_", "-")
        if not inside or flag not in _TORCHRUN:
            kept.append(word)
        elif flag not in _ALONE:
            said += _variables(flag, value if equals else rest.pop(0) if rest else "")
    return said, kept


def _variables(flag: str, value: str) -> str:
    import shlex

    if flag == "--rdzv-endpoint":
        host, _, port = value.partition(":")
        return _variables("--master-addr", host) + _variables("--master-port", port)
    name, is_variable, _ = _TORCHRUN[flag].partition("=")
    return f"{name}={shlex.quote(value)} " if is_variable and value and value not in _ANY else ""


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


def _command(*words: str) -> str:
    import shlex

    from primus_core.secrets.redaction import redact_words

    return shlex.join(["primus", *redact_words(words)])
