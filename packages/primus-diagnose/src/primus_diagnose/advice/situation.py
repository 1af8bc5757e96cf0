"""Advice that follows from what is here: a port, a disk, a path, a checkpoint, the time that is left."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping

from primus_core.errors import nearest
from primus_core.outcome.continuing import restart_words
from primus_diagnose.advice import pace
from primus_diagnose.advice.figures import Figures
from primus_diagnose.verdict import Advice, Finding
from primus_machine.files import plain_json
from primus_machine.files.atomic import read_below, read_regular
from primus_machine.host import HostRoot
from primus_machine.units import time_span

__all__ = ["RULES"]

_STEP = re.compile(r"(?:step[-_]|iter_|step_|)(\d{1,12})")
_RENDEZVOUS = re.compile(
    r"server socket|socket\.cpp|c10d|Dist(?:Network|Store|Backend|QueueEmpty)?Error|TCPStore|grpc|chttp2|coordination",
    re.I,
)
_FULL = 0.02
_MOST_TOKENIZER = 1 << 28
_SYSTEM_INFO, _MOST_INFO = "env/system_info.json", 1 << 24
_PACKAGES = {
    "yaml": "PyYAML", "cv2": "opencv-python", "sklearn": "scikit-learn", "skimage": "scikit-image", "PIL": "pillow",
    "google": "protobuf", "dateutil": "python-dateutil", "Crypto": "pycryptodome", "bs4": "beautifulsoup4",
    "sentence_transformers": "sentence-transformers", "lm_eval": "lm-eval", "pkg_resources": "setuptools",
    **{name: name for name in (
        "torch", "torchvision", "torchaudio", "torchdata", "triton", "numpy", "scipy", "pandas", "pyarrow",
        "matplotlib", "transformers", "datasets", "tokenizers", "safetensors", "accelerate", "peft", "tiktoken",
        "sentencepiece", "einops", "wandb", "tensorboard", "mlflow", "pydantic", "requests", "tqdm", "psutil", "regex",
        "nltk", "blobfile", "jax", "flax", "optax", "tensorflow", "zstandard", "fsspec", "s3fs", "boto3", "omegaconf",
    )},
}  # fmt: skip
"""The packages of well-known modules. One with any other name may be somebody else's."""


def port(cause: Finding, figures: Figures, host: HostRoot) -> Iterator[Advice]:
    """Another port for the rendezvous, free on this machine."""
    named, master = cause.first.groups.get("port"), figures.known("distributed", "master_port")
    before, is_rendezvous = named or master, _RENDEZVOUS.search(cause.first.text)
    if named and master and str(named) != str(master):
        yield Advice(
            f"port {named} is not MASTER_PORT ({master}): the program itself asks for it; have it take another"
        )
    elif cause.first.code and not is_rendezvous:
        yield Advice(f"the program itself asks for a port that is in use, at {cause.first.code}: have it take another")
    elif before is None or not is_rendezvous:
        yield Advice(
            "use another port: MASTER_PORT=<port>, or let Primus choose one for each run by leaving MASTER_PORT unset"
        )
    else:
        after = host.free_port()
        action = "unset MASTER_PORT, or use another port" if host.environ.get("MASTER_PORT") else "use another port"
        yield Advice(action, "MASTER_PORT", before, after, words=f"MASTER_PORT={after} before the command")


def disk(cause: Finding, figures: Figures, host: HostRoot) -> Iterator[Advice]:
    """How full the file system is that could not be written; where no path is known, those that are full."""
    named = _existing(cause.first.groups.get("path", ""))
    for place in [named] if named else dict.fromkeys((figures.directory, host.environ.get("TMPDIR") or "/tmp")):  # noqa: S108  # it is looked at
        if place and (space := host.space(place)) and (named or space[1] < _FULL * space[0]):
            total, free = (f"{value / 2**20:,.1f} MiB" for value in space)
            yield Advice(f"free space on the file system of {place}: {free} of {total} are left now")


def workspace(cause: Finding, figures: Figures, __: HostRoot) -> Iterator[Advice]:
    """Another place for runs, where what could not be written lies in theirs."""
    folder = os.path.dirname(figures.directory)
    if folder and _is_below(_named(cause, figures), folder):
        yield Advice("write to another place", "workspace", folder, "a folder that you can write")


def mount(cause: Finding, figures: Figures, __: HostRoot) -> Iterator[Advice]:
    """The mount that a container has of a path, without `:ro`."""
    named = _named(cause, figures)
    if not named or "container" not in str(figures.known("place", "outer")):
        return
    closed = [word for word in figures.record.command if word.endswith(":ro") and _shows(word, named, figures)]
    for word in closed:
        yield Advice(
            f"mount it without `:ro`: `{shlex.quote(word.removesuffix(':ro'))}` instead of `{shlex.quote(word)}`"
        )
    if not closed:
        yield Advice(f"in a container: mount its folder, without `:ro`: `--mount FOLDER:{_folder_to_mount(named)}`")


def _shows(mounted: str, named: str, figures: Figures) -> bool:
    """Whether a container has a path from a mount `SOURCE:ro` or `SOURCE:TARGET:ro`."""
    source, _, target = mounted.removesuffix(":ro").rpartition("=")[2].partition(":")
    return _is_below(named, os.path.normpath(os.path.join(figures.record.cwd, target or source)))


def _named(cause: Finding, figures: Figures) -> str:
    """Return the whole path that a line names, from the folder where the run began; empty: it is not known."""
    named = cause.first.groups.get("path", "")
    whole = os.path.normpath(os.path.join(figures.record.cwd, named)) if named else ""
    return whole if os.path.isabs(whole) else ""


def _is_below(named: str, folder: str) -> bool:
    return f"{named}/".startswith(f"{folder.rstrip('/')}/")


def path(cause: Finding, figures: Figures, host: HostRoot) -> Iterator[Advice]:
    """How much of a path is there, and what is there that is called alike."""
    wanted = cause.first.groups.get("path", "").rstrip(".,;:)'\"")
    if not os.path.isabs(wanted):
        return
    if os.path.exists(wanted):
        here, node = host.hostname(), cause.first.node
        look = "the run has not seen it" if node == here else f"look whether it is on {node or 'the other nodes'}"
        yield Advice(f"{wanted} is here on {here}: {look}; in a container: --mount {_folder_to_mount(wanted)}")
        return
    if "container" in str(figures.known("place", "outer")) and not wanted.startswith(figures.record.cwd or "/"):
        return  # what this machine has says nothing about a path of the image or of a mount
    there = _existing(wanted)
    missing = wanted[len(there) :].strip("/").partition("/")[0]
    near = nearest(missing, host.names(there)[:10_000]) if missing else ""
    alike = f"; did you mean {os.path.join(there, near)}?" if near else ""
    yield Advice(f"correct the path: {there} exists, and has no {missing!r}{alike}")


def _folder_to_mount(wanted: str) -> str:
    """What shows a path in a container. All of `/` would hide what the container needs."""
    above = wanted if os.path.isdir(wanted) else os.path.dirname(wanted)
    return above if above != "/" else wanted


def _existing(wanted: str) -> str:
    """The nearest folder above a path that is there."""
    while wanted and not os.path.exists(wanted):
        above = os.path.dirname(wanted)
        wanted = above if above != wanted else ""
    return wanted


def module(cause: Finding, figures: Figures, host: HostRoot) -> Iterator[Advice]:
    """The command that installs it for the Python that ran."""
    name = cause.first.groups.get("mod", "").partition(".")[0]
    if not name.isidentifier():
        return
    python = figures.known("python") or "python"
    package = _PACKAGES.get(name)
    what = "install it" if package else f"if it is no module of your own: find which package has {name}, and install it"
    command = f"{shlex.quote(str(python))} -m pip install {package or '<package>'}"
    yield Advice(f"{what} for the Python that ran: `{command}`")


_VOCABULARY = {"torchtitan": "model.vocab_size", "megatron": "padded_vocab_size"}
"""The setting that says how many rows the embedding has; others call it `vocab_size`."""


def vocabulary(cause: Finding, figures: Figures, host: HostRoot) -> Iterator[Advice]:
    """The size that the model's vocabulary needs."""
    size = figures.number("vocab_size")
    after = figures.known("config", "data", "vocab_size") or _tokenizer_size(figures, host) or _above(cause)
    if isinstance(size, int) and isinstance(after, int) and after > size:
        setting, after = _VOCABULARY.get(figures.framework, "vocab_size"), _divisible(after, figures)
        before = figures.settings.get(setting) if setting.startswith("padded") else size
        cost = f"{after - (before or size)} more rows in the embedding; a checkpoint of the smaller model does not fit"
        action = "set the model's vocabulary to the tokenizer's"
        yield Advice(action, setting, before, after, cost, f"{setting}={after}")


def divisible(cause: Finding, figures: Figures, __: HostRoot) -> Iterator[Advice]:
    """The next size of a vocabulary that Megatron can split."""
    setting = _VOCABULARY["megatron"]
    before = figures.settings.get(setting)
    if isinstance(before, int) and cause.first.groups.get("size") == str(before):
        after = _divisible(before, figures)
        action = "make the vocabulary a multiple of tensor_model_parallel_size"
        yield Advice(action, setting, before, after, words=f"{setting}={after}")


def _divisible(size: int, figures: Figures) -> int:
    """Return the first size from `size` on of which each rank of Megatron's tensor parallelism gets as much."""
    parts = figures.settings.get("tensor_model_parallel_size")
    parts = parts if isinstance(parts, int) and figures.framework == "megatron" else 1
    return -(-size // max(parts, 1)) * max(parts, 1)


def _above(cause: Finding) -> int:
    """The least vocabulary that has the token id of the line; 0: it names none."""
    token = cause.first.groups.get("token", "")
    return int(token) + 1 if token else 0


def _tokenizer_size(figures: Figures, host: HostRoot) -> int:
    """How many tokens the tokenizer of the run has; 0: nobody knows."""
    folder = figures.settings.get("hf_assets_path") or figures.settings.get("tokenizer_model") or ""
    try:
        data = plain_json.loads(read_regular(os.path.join(str(folder), "tokenizer.json"), _MOST_TOKENIZER))
        ids = [*data["model"]["vocab"].values(), *(token["id"] for token in data.get("added_tokens", ()))]
        return int(max(ids)) + 1
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return 0


def checkpoint(_: Finding, figures: Figures, host: HostRoot) -> Iterator[Advice]:
    """Which checkpoint is passed over at the next start, and which one is continued from."""
    for run in (figures.directory, str(figures.known("continues") or "")):
        folder = f"{run}/checkpoints"
        names = _checkpoints(run, host)
        if not names:
            continue
        path = f"{folder}/{names[-1]}"
        if len(names) > 1:
            yield Advice(
                f"start it again with the same settings: it passes over {path}, and continues from {names[-2]}"
            )
        else:
            yield Advice(f"{path} is the only checkpoint; to start from the first step: --new, without --continue")
        return


def _checkpoints(run: str, host: HostRoot) -> list[str]:
    """Return the names of a run's checkpoints, the last step's last."""
    matches = filter(None, map(_STEP.fullmatch, host.names(f"{run}/checkpoints") if run else ()))
    return [match[0] for match in sorted(matches, key=lambda match: int(match[1]))]


def diverged(_: Finding, figures: Figures, __: HostRoot) -> Iterator[Advice]:
    """Where to start again: at a checkpoint from before the loss was not finite, or at the first step."""
    words = restart_words(figures.directory) if figures.directory and figures.framework else ""
    if words:
        place = "the first step" if words == "--new" else "before the loss was not finite"
        yield Advice(f"with these changes, start again from {place}", words=words)


def rendezvous(_: Finding, figures: Figures, __: HostRoot) -> Iterator[Advice]:
    """The address that all nodes must reach."""
    place = figures.known("distributed")
    if isinstance(place, Mapping) and place.get("master_addr"):
        address = f"{place['master_addr']}:{place.get('master_port')}"
        yield Advice(
            f"check that {address} is reached from each of the {place.get('nnodes')} nodes, and that all have started"
        )


def time_limit(_: Finding, figures: Figures, host: HostRoot) -> Iterator[Advice]:
    """How much time the rest of the steps takes, and how to save before the end."""
    last, saved = pace.reached(figures), _last_saved(figures, host)
    if last is None:
        before = "before the first step" if figures.framework else "before it was done"
        yield Advice(f"the job ended {before}: give it more time (`-t` of Slurm)")
        return
    yield from _rest(figures, last, saved)
    if last <= saved:
        return
    if not any(word.partition("=")[0] == "--signal" for word in figures.record.command):
        yield Advice(
            "save a checkpoint before the end: let Slurm send a signal some minutes before (`primus slurm sbatch "
            "--signal=B:USR1@300`, `primus slurm srun --signal=USR1@300`), and start it again"
        )
    else:
        yield Advice(
            "the command has `--signal` already, and there is no checkpoint of the last step: the save needs more "
            "time. Let Slurm send the signal earlier, and raise `--grace-period`"
        )


def _last_saved(figures: Figures, host: HostRoot) -> int:
    """Return the step of the last checkpoint, of the run or of the one that it continues; -1: there is none."""
    runs = (figures.directory, str(figures.known("continues") or ""))
    names = next(filter(None, (_checkpoints(run, host) for run in runs)), None)
    return int(re.findall(r"\d+", names[-1])[0]) if names else -1


def _rest(figures: Figures, last: int, saved: int) -> Iterator[Advice]:
    """Say how much time the steps take that are left."""
    steps = plain_json.number(figures.number("steps"))
    if steps is None or not 0 < last < steps:
        return
    again, rest = "start it again, which continues it,", f"from the checkpoint of step {saved}, the rest takes"
    if saved < 0:
        again, rest = "start it again", "there is no checkpoint, and all of them take"
    known = pace.of_run(figures)
    time = known and time_span(known.start_s + known.step_s * max(steps - max(saved, 0), 0))
    takes = f"; {rest} about {time}, with the start" if time else ""
    yield Advice(f"{again} with time enough: it made {last} of {steps} steps{takes}")


_WEIGHT, _ADAM = 4, 8
"""Bytes of host memory for each parameter, at least: the weight in fp32, and its two moments."""


def model_memory(cause: Finding, figures: Figures, __: HostRoot) -> Iterator[Advice]:
    """A smaller model, where one that trains on CPUs is larger than their memory."""
    parameters, memory = figures.number("parameters") or 0, _memory(cause, figures)
    has_adam = "adam" in str(figures.hyperparameters.get("optimizer")).lower()
    needed = parameters * (_WEIGHT + _ADAM * has_adam) / (plain_json.whole(figures.known("distributed", "nnodes")) or 1)
    if figures.known("config", "device") == "cpu" and 0 < memory < needed:
        what = f"its weights{' and optimizer' if has_adam else ''} alone need {needed / 1e9:,.0f} GB on each node"
        there = f"there are {memory / 1e9:,.0f} GB"
        yield Advice(f"use a smaller model, or train on GPUs or more nodes: {what}, and {there}")


def _memory(cause: Finding, figures: Figures) -> float:
    """Return the bytes that the run could use on its node, the machine's or of a limit in a line; 0: not known."""
    try:
        known = plain_json.loads(read_below(figures.directory, _SYSTEM_INFO, _MOST_INFO))["memory_bytes"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        known = 0
    limit = re.fullmatch(r"([\d,]{1,15}(?:\.\d)?) MiB", cause.first.groups.get("limit", ""))
    named = float(limit[1].replace(",", "")) * 2**20 if limit else 0
    return min(filter(None, (plain_json.number(known), named)), default=0)


def host_memory(_: Finding, figures: Figures, __: HostRoot) -> Iterator[Advice]:
    """How to ask for more, where it ran."""
    words = {"slurm": "--mem=0 as an option of slurm", "container": "--memory=<more> as an option of container"}
    if word := words.get(str(figures.known("runtime") or "")):
        yield Advice("ask for more host memory", words=word)


def hung(_: Finding, figures: Figures, __: HostRoot) -> Iterator[Advice]:
    """How to learn what each rank waited for."""
    yield Advice(
        "read what each process did: the stacks in hang/ of the run directory, or at the end of each rank's log"
    )
    if figures.record.world_size != 1:
        yield Advice(
            "run again with TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1, which says who did not join which "
            "collective"
        )


_STOPPED = "stopped"
"""What `primus-watch` calls a process in state T."""


def stopped(cause: Finding, _: Figures, __: HostRoot) -> Iterator[Advice]:
    """A process in state T hangs by nothing in the program."""
    if cause.first.groups.get("kind") == _STOPPED:
        yield Advice(
            "the process was stopped (SIGSTOP, Ctrl-Z, a debugger, `scontrol suspend`): find out by whom, and start "
            "the run again; before the limit, `kill -CONT <pid>` on its node lets it continue"
        )


def alive(_: Finding, figures: Figures, __: HostRoot) -> Iterator[Advice]:
    """How to look into a process that still hangs."""
    if figures.is_running:
        yield Advice("look at what its process does: `py-spy dump --pid <pid>` on its node")


RULES: Mapping[str, Callable[[Finding, Figures, HostRoot], Iterator[Advice]]] = {
    "alive": alive,
    "checkpoint": checkpoint,
    "disk": disk,
    "diverged": diverged,
    "divisible": divisible,
    "host_memory": host_memory,
    "hung": hung,
    "model_memory": model_memory,
    "module": module,
    "mount": mount,
    "path": path,
    "port": port,
    "rendezvous": rendezvous,
    "stopped": stopped,
    "time_limit": time_limit,
    "vocabulary": vocabulary,
    "workspace": workspace,
}
"""By the name that a signature has among its `remedies`; others are rows of `remedies.toml`."""
