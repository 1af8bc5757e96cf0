"""What a person may have meant by an experiment that is not there: the nearest file, the nearest template, and the
command as they typed it with either. Only an error needs it.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from primus_core.config import files
from primus_core.errors import ConfigError, PrimusError, RequestError, nearest
from primus_core.request import former

__all__ = ["missing_file", "missing_option", "nearest_file", "nearest_template"]

_SUFFIXES = (".yaml", ".yml", ".toml")
_FORMER = {
    "EXP": "name the experiment with --config",
    "BACKEND": "set the backend with `framework:` in the experiment",
    "DATA_PATH": "name the data in the experiment",
    "DOCKER_IMAGE": "name the image with `primus container --image`",
}
"""Variables that the scripts of AMD's Primus read (examples/run_pretrain.sh, run_local_pretrain.sh), and what does it
here. NNODES, NODE_RANK, MASTER_ADDR, MASTER_PORT and GPUS_PER_NODE mean the same.
"""
_EXP = "--exp"
"""Another name of `--config` there."""
_LIST = "`primus config list` lists all templates"
_OPTIONS = ("--config", "--replay")
_AGAIN = "to replay a run: train pretrain --replay RUN"
_CUTOFF = 0.85
"""How alike two paths are, of which one is suggested for the other: another model's file is no help."""
_SHOWN = 3
_STAGE = "pretrain"
_OF_TEMPLATE = ("--model", "--backend", "--framework", "--gpu", "model")
"""What names a template elsewhere."""
_MOST = 2000
"""So many files are looked at; a home folder has more than anybody wants to wait for."""


def missing_file(path: str, command: Sequence[str], environ: Mapping[str, str]) -> ConfigError:
    """The error for an experiment that is no file, with the commands that were probably meant."""
    near = [*filter(None, (nearest_file(path), nearest_template(path, environ)))]
    plain = files.missing_file(path)
    plain.fix = "\n".join([*(_meant(near, command) or [plain.fix]), _LIST])
    plain.meant = shlex.quote(near[0]) if near and not command else None
    return plain


def missing_option(
    stage: str, overrides: Sequence[str], command: Sequence[str], environ: Mapping[str, str]
) -> RequestError:
    """The error for a training without `--config`, with the commands that were probably meant."""
    if meant := former.instead("train", stage):
        return RequestError(f"'{stage}' is not a stage of `train`", fix=meant)
    for word in (word for word in overrides if word.startswith("--") and word.partition("=")[0] != _EXP):
        if word.startswith(("--config-name", "--config-path")):
            return RequestError("--config is missing", why="it names the whole file", fix="--config FOLDER/NAME.yaml")
        if meant := nearest(word.partition("=")[0], _OPTIONS):
            why, text = f"'{word}' would be a setting of the experiment", f"did you mean '{meant}'?"
            return RequestError("--config is missing", why=why, fix=text, kind="unknown", options=[word], meant=meant)
    given = next((word for word in overrides if word.endswith(_SUFFIXES) or word.startswith(files.TEMPLATE)), "")
    named, here = environ.get("EXP", ""), list[str]()
    template, of_model = ("", set[str]()) if given else _named_model([stage, *overrides], environ)
    if template:
        near = [template]
    elif given:
        near = [re.sub(r"^(?:--?[\w.-]+|\w+)=", "", given)]  # `--exp=FILE`, `config=FILE`, and what others call it
    elif named:
        near = [named if os.path.isfile(named) else nearest_file(named), nearest_template(named, environ)]
    else:
        here = [*_experiments(".")]
        near = here if len(here) == 1 else []
    before = [word for word, after in pairwise(overrides) if after == given and re.fullmatch(r"--?[\w.-]+", word)]
    fix = _meant([*filter(None, near)], [word for word in command if word not in {_EXP, given, *before, *of_model}])
    if len(here) > 1:
        some = f"{', '.join(here[:_SHOWN])}{', ...' if len(here) > _SHOWN else ''}"
        fix = fix or [_with_config("FILE", command), f"FILE is one of {len(here)} experiments here: {some}"]
    fix = fix or ["train pretrain --config FILE, or train pretrain --config template:BACKEND/MODEL/GPU"]
    text = "\n".join([*fix, _LIST, _AGAIN])
    return RequestError("--config is missing", why=_former(environ), fix=text, kind="missing", options=["--config"])


def _named_model(words: Sequence[str], environ: Mapping[str, str]) -> tuple[str, set[str]]:
    """The template that `--model MODEL --backend BACKEND` or `MODEL` alone means, and these words; or nothing."""
    named: dict[str, list[str]] = {}
    for before, word in zip(("", *words), words, strict=False):
        flag, equals, value = word.partition("=")
        if equals and flag in _OF_TEMPLATE:
            named[value] = [word]
        elif word[:1] != "-" and not equals and (before[:1] != "-" or "=" in before or before in _OF_TEMPLATE):
            named[word] = [before, word] if before in _OF_TEMPLATE else [word]
    named.pop(_STAGE, None)
    for word in named:
        if found := nearest_template("/".join([*(other for other in named if other != word), word]), environ):
            return found, {*_OF_TEMPLATE, *(one for typed in named.values() for one in typed)}
    return "", set()


def _former(environ: Mapping[str, str]) -> str:
    """One line on the variables that are set for the scripts of AMD's Primus."""
    found = [name for name in _FORMER if environ.get(name)]
    return f"Primus does not read {', '.join(found)}: {'; '.join(_FORMER[name] for name in found)}" if found else ""


def nearest_file(path: str) -> str:
    """The experiment whose path is most like `path`, of those in its folder or below where the person stands."""
    wanted = os.path.normpath(path)
    folder = os.path.dirname(wanted)
    beside = [os.path.join(folder, name) for name in _listed(folder or ".")]
    found = difflib.get_close_matches(wanted, beside, n=1, cutoff=_CUTOFF)
    below = [] if found or os.path.isabs(wanted) else [*_experiments(".")]
    same = [path for path in below if os.path.basename(path) == os.path.basename(wanted)][:1]
    return (found or difflib.get_close_matches(wanted, below, n=1, cutoff=_CUTOFF) or same or [""])[0]


def nearest_template(text: str, environ: Mapping[str, str]) -> str:
    """The template that a path or name means: `template:megatron/llama3.1_8B/MI300X`, or nothing."""
    from primus_train.templates import catalogue as templates

    try:
        known = templates.known()
    except PrimusError:  # a broken package of others is another error's matter
        return ""
    text = text.lower()
    backend = environ.get("BACKEND", "").lower()
    models = {name: template.model for template in known for name in _names(template.model)}
    stem = re.sub(r"\.(?:yaml|yml|toml)$", "", os.path.basename(text))  # `llama3.1_8b` has a dot of its own
    inside = max((name for name in models if _has(stem, name)), key=len, default="")
    alike = difflib.get_close_matches(re.split(r"-(?:bf16|fp8|fp4|mx|pretrain)", stem)[0], models, n=1, cutoff=0.7)
    if not (model := models.get(inside or (alike or [""])[0])):
        return ""
    fit = [t for t in known if t.model == model]
    best = max(fit, key=lambda t: (_has(text, t.backend) or t.backend == backend, _has(text, t.gpu.lower()),
                                   _has(text, t.precision.lower()), t.is_usual, t.gpu == "MI300X"))  # fmt: skip
    return best.name


def _names(model: str) -> Iterator[str]:
    """What a model is called, in small letters: by its own name and its aliases."""
    from primus_train.models import catalogue

    yield model.lower()
    if found := catalogue.load().get(model):
        yield from (alias.lower() for alias in found.facts.aliases)


def _has(text: str, name: str) -> bool:
    """Whether `name` stands in `text` as a whole."""
    return bool(re.search(rf"(?<![a-z0-9.]){re.escape(name)}(?![a-z0-9.])", text))


def _listed(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(_SUFFIXES))
    except OSError:
        return []


def _experiments(folder: str) -> Iterator[str]:
    """Experiments in `folder` and below, the nearest first; other YAML files are none."""
    seen = 0
    level = [folder]
    while level:
        below: list[str] = []
        for path, entry in _entries(level):
            seen += 1
            if seen > _MOST:
                return
            if entry.is_dir(follow_symlinks=False):
                below.append(path)
            elif entry.is_file() and entry.name.endswith(_SUFFIXES) and _is_experiment(path):  # no FIFO: it may wait
                yield os.path.normpath(path)
        level = below


def _entries(folders: Iterable[str]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    for folder in folders:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        yield from ((entry.path, entry) for entry in entries if not entry.name.startswith((".", "output")))


def _is_experiment(path: str) -> bool:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return bool(re.search(r"^\[?(modules|extends)\b", file.read(4096), re.M))
    except OSError:
        return False


def _meant(near: Sequence[str], command: Sequence[str]) -> list[str]:
    """A line for each, with the command that was typed where it is known."""
    shown = [_with_config(one, command) if command else shlex.quote(one) for one in near]
    return [f"{'or' if index else 'did you mean'}: {one}" for index, one in enumerate(shown)]


def _with_config(path: str, command: Sequence[str]) -> str:
    """The command that was typed, with this experiment."""
    words = list(command)
    start = max((i for i, word in enumerate(words) if word == "--"), default=-1) + 1
    at = next((i for i in range(start, len(words)) if words[i].partition("=")[0] == "--config"), -1)
    if at < 0:
        task, rest = words[: start + 1], words[start + 1 :]
        has_stage = bool(rest) and rest[0][:1] != "-" and "=" not in rest[0]
        return shlex.join([*task, rest.pop(0) if has_stage else _STAGE, "--config", path, *rest])
    until = at + 1 if "=" in words[at] else at + 2
    return shlex.join([*words[:at], "--config", path, *words[until:]])
