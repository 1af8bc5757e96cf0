"""The experiment file: its form, checked, and its presets found and merged.

Order, a later one wins: model preset < framework preset (`config:`) < `overrides:` < command line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from primus_core.config.document import REFUSED, Document, Path, at, deep_merge, dotted
from primus_core.errors import AlreadyRefused, ConfigError, Mistakes, nearest, suggestion
from primus_core.journal.metrics import OnNonFinite
from primus_core.request import former
from primus_machine import strict
from primus_train.overrides import is_alone, no_section
from primus_train.presets import Models, Presets, read
from primus_train.released import Released

__all__ = ["Experiment", "Models", "Module", "as_meant", "left_out", "merged", "parse", "read", "select"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One trainer: a framework and its settings. `model` and `config` are preset names or settings written out."""

    framework: str
    config: str | dict[str, Any] = field(default_factory=dict)
    model: str | dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    overrides: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A whole experiment file."""

    exp_name: str
    modules: dict[str, Module]
    work_group: str = ""
    user_name: str = ""
    workspace: str = "output"
    on_non_finite: OnNonFinite = "stop"
    env: dict[str, str | int | float | bool] = field(default_factory=dict)


def parse(document: Document, mistakes: Mistakes | None = None) -> Experiment:
    """The experiment in `document`. With `mistakes`, what is wrong goes there, and the rest is the experiment.

    Raises:
        ConfigError: what is wrong, with file, line and suggestion.
        AlreadyRefused: it is in `mistakes`, and there is no rest.
    """
    try:
        return strict.read(Experiment, document.data)
    except strict.ValidationError as error:
        wrong: dict[Path, Any] = {}
        for one in error.errors():
            wrong.setdefault(_place(one, document), one)  # of a union, the first says it best
    if not document.data:
        fix = "write its settings, or begin with one that works: primus config new"
        raise ConfigError("the file is empty", where=document.where(()), why="it holds no settings", fix=fix)
    found, foreign = Mistakes(), _foreign_keys(document, wrong)
    if foreign:
        found.add(_explain_foreign(foreign, document))
    if len(foreign) == len(document.data):
        raise found.found[0]  # not an experiment at all: what it lacks only follows
    for path, one in wrong.items():
        if path not in foreign and not (at(document.data, path) is REFUSED or _is_misspelt(path, one, wrong)):
            found.add(_explain(path, one, document))
    if mistakes is None:
        found.refuse()
        raise AlreadyRefused(dotted(next(iter(wrong))))
    mistakes.add(*found.found)
    for path, one in wrong.items():
        if path[0] == "modules" and one["type"] not in ("extra_forbidden", "missing"):
            raise AlreadyRefused(dotted(path))  # what the module lacks would only follow
    return _rest(document.data, wrong)


_Wrong = Mapping[Path, Any]
_EXTENDS = "extends"
"""The key at the top of a file that is read before its form is checked."""
_SEVERAL = 2
"""So many unknown keys at the top are no slips of the finger."""


def _foreign_keys(document: Document, wrong: _Wrong) -> list[Path]:
    """Return the unknown keys at the top of a file if there are several, and none is like a known one."""
    unknown: list[Path] = [path for path, one in wrong.items() if one["type"] == "extra_forbidden" and len(path) == 1]
    alike = any(nearest(str(path[0]), _fields_beside(path)) or _other_key(path) for path in unknown)
    return [] if alike or len(unknown) < _SEVERAL else unknown


def _explain_foreign(keys: Sequence[Path], document: Document) -> ConfigError:
    """Return one error for all of them: they have one cause."""
    names = ", ".join(f"'{key[0]}'" for key in keys)
    if len(keys) == len(document.data):
        why = f"it has {names}, and an experiment has {', '.join(_fields_beside(keys[0]))}"
        return ConfigError("not an experiment", where=document.where(()), why=why, fix="name an experiment")
    fix = "settings of the framework belong below `overrides:`"
    known = f"known here: {', '.join(_fields_beside(keys[0]))}"
    return ConfigError(f"unknown keys {names}", where=document.where(keys[0]), why=known, fix=fix)


def _place(one: Any, document: Document) -> Path:
    path: Path = tuple(one["loc"])
    while one["type"] not in ("extra_forbidden", "missing") and not _stands(document.data, path):
        path = path[:-1]  # pydantic adds the branch of a union (`str`, `dict[...]`); the file has no such key
    return path


def _is_misspelt(path: Path, one: Any, wrong: _Wrong) -> bool:
    """Whether a key is missing because it is misspelt, or `extends` is: that one's message has the line and more."""
    beside = (p for p, other in wrong.items() if other["type"] == "extra_forbidden" and p[:-1] == path[:-1])
    meant = [str(path[-1]), *[_EXTENDS] * (len(path) == 1)]
    return one["type"] == "missing" and any(nearest(str(p[-1]), meant) for p in beside)


def _rest(data: Mapping[str, Any], wrong: _Wrong) -> Experiment:
    """What can be checked although something is wrong: without it, and with names where they are missing."""
    kept = _copied(data)
    for path in wrong:
        around = at(kept, path[:-1]) if path else None
        if isinstance(around, dict):
            around.pop(path[-1], None)
            around |= {"exp_name": "unnamed"} if path == ("exp_name",) else {}
    try:
        return strict.read(Experiment, kept)
    except strict.ValidationError:
        raise AlreadyRefused(dotted(next(iter(wrong)))) from None


def _copied(data: Any) -> Any:
    """A copy of which every mapping can be changed."""
    return {key: _copied(value) for key, value in data.items()} if isinstance(data, Mapping) else data


def as_meant(document: Document) -> Document:
    """Return the experiment with misspelt keys of its modules as they were meant: the rest is checked by them.

    Raises:
        AlreadyRefused: an unknown key is like no known one, so that what lacks may be in it.
    """
    known, data, marks = strict.keys(Module), dict(document.data), dict(document.marks)
    modules = data.get("modules")
    written = {} if not isinstance(modules, Mapping) else {n: m for n, m in modules.items() if isinstance(m, Mapping)}
    for name, module in written.items():
        for key in [key for key in module if key not in known]:
            path: Path = ("modules", name)
            meant = nearest(str(key), [one for one in known if one not in module])
            if not meant:
                raise AlreadyRefused(dotted((*path, key)))
            old, new = (*path, key), (*path, meant)
            data = deep_merge(data, {"modules": {name: {meant: module[key]}}})
            marks |= {(*new, *one[3:]): mark for one, mark in document.marks.items() if one[:3] == old}
    return Document(data, marks, document.files)


def _explain(path: Path, one: Any, document: Document) -> ConfigError:
    name = dotted(path)
    where = document.where(path)
    if one["type"] == "extra_forbidden":
        known = _fields_beside(path)
        return ConfigError(
            f"unknown key '{name}'",
            where=where,
            why=f"known here: {', '.join(known)}",
            fix=_other_key(path)
            or suggestion(str(path[-1]), known)
            or "settings of the framework belong below `overrides:`",
        )
    if one["type"] == "missing":
        return ConfigError(f"'{name}' is missing", where=where, fix=f"add `{path[-1]}:`")
    given = at(document.data, path)
    if given is True and is_alone(where):
        return ConfigError(f"'{where.rpartition(' ')[2]}' has no value", fix="write it after the key: --key VALUE")
    if path[2:] == ("data",) and isinstance(given, str):
        fix = f"data: {{input: {given}, tokenizer_model: FILE}}, or train_data_path: of prepared data"
        return ConfigError(f"'{name}' is {given!r}", where=where, why="it is a section of settings", fix=fix)
    fix = _of_these(given, one) if one["type"] == "literal_error" else _FIXES.get(one["type"], _NESTED)
    return ConfigError(f"'{name}' is {given!r}", where=where, why=one["msg"], fix=fix)


def _other_key(path: Path) -> str:
    """What to do about a key that is another's, or belongs elsewhere; empty: neither is known."""
    return former.instead("module" if len(path) > 2 else "experiment", str(path[-1]))


def _of_these(given: Any, error: Any) -> str:
    known = str(error["ctx"]["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
    return suggestion(str(given), known) or f"write one of: {', '.join(known)}"


_NESTED = "write keys and values below it, indented"
_FIXES = {"string_type": "write text; quote it if it looks like a number"}


def _stands(data: Any, path: Path) -> bool:
    around = at(data, path[:-1])
    return not path or (isinstance(around, Mapping) and path[-1] in around)


def _fields_beside(path: Path) -> list[str]:
    return strict.keys(Module) if len(path) > 2 else sorted([*strict.keys(Experiment), *[_EXTENDS] * (len(path) == 1)])


_MODULES = {"pretrain": "pre_trainer", "posttrain": "post_trainer", "sft": "sft_trainer"}
"""The module of each stage. Primus has the first; a module of another stage is not taken for it."""


def select(experiment: Experiment, stage: str, document: Document) -> str:
    """The name of the module that `train <stage>` runs: `pre_trainer` for pretrain, or the only trainer there is.

    Raises:
        ConfigError: there is none, or more than one and none has the stage's name.
    """
    wanted = _MODULES.get(stage, f"{stage}_trainer")
    trainers = [name for name in experiment.modules if "trainer" in name]
    if wanted in trainers:
        return wanted
    if len(trainers) == 1 and not (stage in _MODULES and trainers[0] in _MODULES.values()):
        return trainers[0]
    no_trainer = "" if trainers else "; a module that trains has `trainer` in its name"
    fix = f"to {stage}, call it '{wanted}'"
    if stage != "pretrain":
        fix = f"Primus itself only pretrains, without fine-tuning yet; for a backend that has it, call it '{wanted}'"
    elif set(trainers) & set(_MODULES.values()):
        fix = f"Primus has no fine-tuning yet; {fix}"
    raise ConfigError(
        f"no module to {stage}",
        where=document.where(("modules",)),
        why=f"modules: {', '.join(experiment.modules) or 'none'}{no_trainer}",
        fix=fix,
    )


def left_out(experiment: Experiment, module: str) -> tuple[str, ...]:
    """Return a note that names the modules of which a run of `module` does nothing."""
    others = ", ".join(f"'{name}'" for name in experiment.modules if name != module)
    return (f"one module runs, '{module}'; not used: {others}",) if others else ()


def merged(
    document: Document,
    module: str,
    *,
    folder: str,
    environ: Mapping[str, str],
    beside: str,
    command_line: Document,
    models: Models | None = None,
    mistakes: Mistakes | None = None,
) -> Document:
    """The module's settings, all four sources merged: the model's below `model`, data below `data`.

    A preset in `folder` wins over one of `models` with its name. With `mistakes`, what is wrong goes there, and the
    source in which it is stands under the key `""` as `REFUSED`.

    Raises:
        ConfigError: what is wrong with a source.
    """
    path: Path = ("modules", module)
    released = Released.asked(folder, at(document.data, (*path, "config")), document.where((*path, "config")))
    presets = Presets(folder, beside, environ, models, released)

    def data() -> Document:
        return (
            document.section((*path, "data")).below(("data",)) if at(document.data, (*path, "data")) else Document({})
        )

    sources: tuple[Callable[[], Document], ...] = (
        lambda: _source(document, (*path, "model"), lambda n, w: presets.read("models", n, w)).below(("model",)),
        lambda: _source(document, (*path, "config"), lambda n, w: presets.read("modules", n, w)).nested(),
        data,
        lambda: document.section((*path, "overrides")).nested(),
        lambda: _with_sections(command_line),
    )
    whole, found = Document({}), Mistakes()
    for source in sources:
        one = Document({"": REFUSED})
        with found:
            one = source()
        whole = one.merged_onto(whole)
    if mistakes is None:
        found.refuse()
    else:
        mistakes.add(*found.found)
    return whole


def _with_sections(command_line: Document) -> Document:
    """Return the command line.

    Raises:
        ConfigError: it gives a value to a section that every experiment has.
    """
    for key in ("model", "data"):
        value = command_line.data.get(key, {})
        if value is not REFUSED and not isinstance(value, Mapping):
            raise no_section((key,), value, command_line.where((key,)))
    return command_line


def _source(document: Document, path: Path, read: Callable[[str, str], Document]) -> Document:
    value = at(document.data, path)
    if value is REFUSED or not isinstance(value, str | Mapping | None):
        raise AlreadyRefused(dotted(path))
    return read(value, document.where(path)) if isinstance(value, str) else document.section(path)
