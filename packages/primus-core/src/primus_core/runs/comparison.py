"""What differs between two saved runs, and how much each difference matters to a replay. Pure: data to data."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from primus_core import variables
from primus_core.environment.resolve import FAMILIES, OF_SYSTEM, belongs_to_session
from primus_core.runs.saved import Saved
from primus_core.runs.settings import Path, differing, flatten
from primus_machine.secrets.names import SECRET

__all__ = ["NONE", "SEVERITY", "Category", "Difference", "Severity", "compare", "severity", "variables_of"]

Category = Literal["config", "environment", "packages", "code", "hardware", "health"]
Severity = Literal["blocking", "warning", "note"]

NONE = "none"
"""Stands for what a machine or a repository does not have."""

SEVERITY: Mapping[str, Severity] = {
    "hardware.gpu_model": "blocking",
    "hardware.driver": "warning",
    "hardware.rocm": "warning",
    "hardware.cuda": "warning",
    "hardware": "note",
    "config": "warning",
    "packages": "warning",
    "code": "warning",
    "environment": "note",
}
"""By `category.name`, else by category. Too few devices is a question of counting: see `severity`."""

_HARDWARE = ("gpu_model", "physical_gpus", "driver", "rocm", "cuda", "kernel", "cpu_model", "cpu_count", "host")
_NEUTRAL = "hyperparameters"
_ASKED = ("task", "runtime", "framework", "model", "preflight")
_PLACED = ("nnodes", "gpus_per_node")
# Where ranks meet is another place in every run.
_BY_NATURE = re.compile(r"(--)?((master|rdzv)[-_](addr|port|endpoint|id|backend)|node[-_]rank)")
_FLAG = re.compile(r"--?[A-Za-z].*")
_SETTING = re.compile(r"([A-Za-z_][\w.-]*)=(.*)", re.S)


class Difference(NamedTuple):
    """One thing that is not the same. Empty: the run does not have it."""

    category: Category
    name: str
    before: str
    after: str


def compare(a: Saved, b: Saved) -> list[Difference]:
    """What differs from `a` to `b`, by category; paths below each run's own directory are equal."""
    return [
        *_rows("config", *(_asked(run) | _of_framework(run) for run in (a, b))),
        *_images(a, b),
        *_rows("environment", *_environments(a, b)),
        *_rows("packages", *(dict(sorted(run.packages.items())) for run in (a, b))),
        *_rows("code", _code(a), _code(b)),
        *_rows("hardware", *_machines(a, b)),
        *_partitions(a, b),
    ]


def severity(difference: Difference, saved: Saved, here: Saved) -> Severity:
    """How much a difference matters to whoever replays `saved` where `here` was taken."""
    category, name, before, _ = difference
    if category == "hardware" and name in ("physical_gpus", "devices"):
        return "blocking" if _devices(here) < _needed(saved) else "note"
    if category == "config" and name == "nnodes" and (saved.plan.get("distributed") or {}).get("one_per_node"):
        return "blocking"  # a process and its devices belong to a node: they cannot be dealt out anew
    if name == "gpu_model" and before == NONE:
        return "note"
    if category == "environment" and before == SECRET:
        return "warning"  # it is not here: whether the run needs it, nobody can say
    return SEVERITY.get(f"{category}.{name}") or SEVERITY[category]


def _rows(category: Category, before: Mapping[Any, Any], after: Mapping[Any, Any]) -> Iterator[Difference]:
    return (Difference(category, *row) for row in differing(before, after))


def _of_framework(run: Saved) -> dict[Path, Any]:
    """What it got; where there is no framework, what the programs got."""
    backend, own = run.configs.get("backend_config"), _own(run)
    if isinstance(backend, Mapping):
        backend = {name: value for name, value in backend.items() if name != _NEUTRAL}  # the same in other words
    found = flatten(backend) if backend is not None else dict(_programs(run.plan))
    return {path: _mapped(value, own) for path, value in found.items() if not _is_by_nature(path)}


def _asked(run: Saved) -> dict[Path, Any]:
    """What Primus itself was asked for."""
    plan, placed = run.plan, run.plan.get("distributed")
    place = placed if isinstance(placed, Mapping) else {}  # a stranger may have written it
    found: dict[Path, Any] = {(name,): plan[name] for name in _ASKED if plan.get(name)}
    found |= {("runtime",): _runtime(run)} if ("runtime",) in found else {}
    found |= {(name,): place[name] for name in _PLACED if name in place}
    if all(isinstance(place.get(name), int) for name in _PLACED):
        found["ranks",] = place["nnodes"] * place["gpus_per_node"]
    scripts = {path: sha for path, sha in run.files.items() if path.startswith(("config/hooks/", "config/patches/"))}
    found |= {(path.removeprefix("config/"),): sha[:12] for path, sha in scripts.items()}
    return found


def _images(a: Saved, b: Saved) -> Iterator[Difference]:
    """What two containers were made from; to have one at all is a matter of the runtime."""
    one, two = (run.environment.get(variables.IMAGE, "") for run in (a, b))
    if one and two and one != two:
        yield Difference("config", "image", one, two)


def _is_by_nature(path: Path) -> bool:
    return bool(path) and bool(_BY_NATURE.fullmatch(str(path[-1])))


def _programs(plan: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    """The worker's arguments and those of the steps before it, each by its flag."""
    worker = plan.get("worker")
    if worker:
        yield ("module",), worker.get("module")
        yield ("launcher",), worker.get("launcher")
        yield from (((flag,), value) for flag, value in _options(worker.get("args") or ()).items())
    for step in plan.get("steps") or ():
        own = worker and step.get("kind") in ("worker", "preflight")
        meets = step.get("kind") == "rendezvous"  # how nodes do so follows from which they are
        if not step.get("script") and not own and not meets:  # of scripts, the text counts
            options = _options(step["argv"][1:])  # the first word is an interpreter's path: packages say more
            yield from (((step["name"], flag), value) for flag, value in options.items())


def _options(words: Sequence[str]) -> dict[str, Any]:
    """Arguments by flag, as far as one can tell: a flag takes the words up to the next one."""
    found: dict[str, list[str]] = {}
    flag = "arguments"
    for word in words:
        setting = _SETTING.fullmatch(word)
        if _FLAG.fullmatch(word):
            flag, equals, value = word.partition("=")
            found.setdefault(flag, []).extend([value] if equals else [])
        elif setting and flag == "arguments":
            found.setdefault(setting[1], []).append(setting[2])
        else:
            found.setdefault(flag, []).append(word)
    return {name: " ".join(values) if values else True for name, values in found.items()}


def _runtime(run: Saved) -> str:
    """Those around the ranks, the outermost first: the plan is that of the innermost."""
    outer = (run.plan.get("place") or {}).get("outer")
    if not outer:
        return str(run.plan.get("runtime") or "")
    return " ".join(dict.fromkeys((run.record.runtime or str(outer), str(outer))))


def _environments(a: Saved, b: Saved) -> list[dict[str, str]]:
    """Both environments. Another runtime, or an image, gives another system around the ranks, so only what belongs to a
    run counts: what its plan sets, less the network's, and the families that change what a run does.
    """
    found = [_environment(a), _environment(b)]
    in_image = [variables.IMAGE in run.environment for run in (a, b)]  # a check looks from outside
    if _runtime(a) == _runtime(b) and in_image[0] == in_image[1]:
        return found
    planned = {str(variable["name"]) for run in (a, b) for variable in run.plan.get("environment") or ()}
    found = [
        {k: v for k, v in one.items() if k in planned or (k.startswith(FAMILIES) and k not in OF_SYSTEM)}
        for one in found
    ]
    chosen = [variables_of(run, "network") for run in (a, b)]  # what follows from where a run's nodes stand
    by_nature = {
        k for k in chosen[0] | chosen[1] if all(k in by for one, by in zip(found, chosen, strict=True) if k in one)
    }
    return [{k: v for k, v in one.items() if k not in by_nature} for one in found]


def variables_of(run: Saved, origin: str) -> set[str]:
    """The variables that a run's plan has from there."""
    return {str(variable["name"]) for variable in run.plan.get("environment") or () if variable.get("origin") == origin}


def _environment(run: Saved) -> dict[str, str]:
    """What the ranks got, less what says only who and where somebody was, and what the settings say already."""
    own = _own(run)
    kept = {k: v for k, v in run.environment.items() if not belongs_to_session(k) and k != "GPUS_PER_NODE"}
    return {name: own(value) for name, value in sorted(kept.items())}


def _own(run: Saved) -> Callable[[str], str]:
    """A function that replaces what is the run's own in a text: its directory, wherever it lay, and its id."""
    place = run.plan.get("place") or {}
    directories = {run.directory, str(place.get("directory") or run.directory)}
    run_id = run.record.run_id or str(place.get("run_id") or "")
    parts = [(f"{re.escape(path)}(?![\\w+-])", "<run>") for path in sorted(directories, key=len, reverse=True)]
    parts += [(rf"(?<!\w){re.escape(run_id)}(?!\w)", "<id>")] if run_id else []

    def own(text: str) -> str:
        for pattern, mark in parts:
            text = re.sub(pattern, mark, text)
        return text

    return own


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    return [_mapped(item, change) for item in value] if isinstance(value, list) else value


def _code(run: Saved) -> dict[str, str]:
    return {"commit": run.code.get("commit") or NONE, "uncommitted changes": _uncommitted(run.code)}


def _uncommitted(code: Mapping[str, Any]) -> str:
    """Checksum and names: two sets of changes to the same files are two."""
    if error := code.get("error"):
        return f"unknown: {error}"
    if not code.get("dirty"):
        return NONE
    names = [*(code.get("changed") or ()), *(f"{left['path']} (left out)" for left in code.get("omitted") or ())]
    more = f", {len(names) - 3} more" if len(names) > 3 else ""
    return f"{str(code.get('patch_sha256') or '')[:12]} {', '.join(names[:3])}{more}".strip()


def _machines(a: Saved, b: Saved) -> list[dict[str, Any]]:
    """Both machines. Another runtime goes to another host, as a scheduler chooses."""
    found = [_hardware(a), _hardware(b)]
    return found if _runtime(a) == _runtime(b) else [{**one, "host": NONE} for one in found]


def _hardware(run: Saved) -> dict[str, Any]:
    return {name: NONE if run.system.get(name) in (None, "") else run.system[name] for name in _HARDWARE}


def _partitions(a: Saved, b: Saved) -> Iterator[Difference]:
    """The same GPUs, but taken apart differently (AMD CPX, DPX): the row about GPUs would not say so."""
    if a.system.get("physical_gpus") == b.system.get("physical_gpus") and _devices(a) != _devices(b):
        yield Difference("hardware", "devices", str(_devices(a)), str(_devices(b)))


def _devices(run: Saved) -> int:
    return len(run.system.get("gpus") or ())


def _needed(run: Saved) -> int:
    """Devices that the run used on this node; a run without any may have had many ranks on the CPUs."""
    return min(_devices(run), int((run.plan.get("distributed") or {}).get("gpus_per_node") or 0))
