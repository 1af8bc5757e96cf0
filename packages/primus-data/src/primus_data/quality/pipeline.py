"""A pipeline file: what it says, with file and line of each mistake.

input: shards/*.jsonl.gz          # or a list; relative to the current folder
output: clean                     # a folder that does not exist yet
steps:
  - language: [en]
  - gopher_quality
  - near_dedup: {threshold: 0.8}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from primus_core.config import files
from primus_core.config.document import Document, Path
from primus_core.errors import ConfigError, Mistakes, suggestion
from primus_data.quality import catalog
from primus_data.quality.catalog import Parameter, Step

__all__ = ["Pipeline", "Use", "read"]


@dataclass(frozen=True)
class Use:
    """A step as a pipeline uses it."""

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
    """Every parameter, defaults included."""

    @property
    def step(self) -> Step:
        """What it is a use of."""
        found = catalog.find(self.name)
        assert found is not None
        return found


@dataclass(frozen=True)
class Pipeline:
    """A pipeline file."""

    inputs: tuple[str, ...]
    """Paths and patterns."""
    output: str
    steps: tuple[Use, ...]
    text: str = "text"
    """The key of the text in a record."""
    samples: int = 10
    """Documents that are kept in the report for each reason."""

    @property
    def modules(self) -> tuple[str, ...]:
        """What it imports."""
        return tuple(dict.fromkeys(name for use in self.steps for name in use.step.modules))

    @property
    def named_files(self) -> tuple[str, ...]:
        """The files that its steps name."""
        values = [use.values for use in self.steps]
        models = [value["model"] for value in values if value.get("model")]
        return (*models, *(path for value in values for path in value.get("against", ())))


_TOP = (
    Parameter("input", "texts", None, "JSONL files (.jsonl, .gz, .zst): paths or patterns"),
    Parameter("output", "str", None, "folder for what is kept"),
    Parameter("text", "str", "text", "key of the text"),
    Parameter("samples", "int", 10, "samples per reason", 0, 10_000),
)
_KEYS = [*(parameter.name for parameter in _TOP), "steps"]


def read(path: str, environ: Mapping[str, str]) -> Pipeline:
    """The pipeline in the file `path`.

    Raises:
        ConfigError: it is wrong; all mistakes at once.
    """
    mistakes = Mistakes()
    document = files.read(path, environ, mistakes)
    lines = _lines_of_steps(path)
    mistakes.add(*_unknown_keys(document))
    values = _values(_TOP, document, (), "the pipeline", mistakes)
    steps = tuple(_steps(document, lines, path, mistakes))
    mistakes.refuse()
    return Pipeline(values["input"], values["output"], steps, values["text"], values["samples"])


def _lines_of_steps(path: str) -> list[int]:
    """The line of each item of `steps`: a document knows only those of keys."""
    import yaml

    with open(path, encoding="utf-8") as file:
        root = yaml.compose(file, Loader=yaml.SafeLoader)
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    items = next((value for key, value in pairs if key.value == "steps"), None)
    return [item.start_mark.line + 1 for item in items.value] if isinstance(items, yaml.SequenceNode) else []


def _unknown_keys(document: Document) -> Iterator[ConfigError]:
    for key in document.data:
        if key not in _KEYS:
            fix = suggestion(key, _KEYS) or f"known keys: {', '.join(_KEYS)}"
            yield ConfigError(f"unknown key '{key}'", where=document.where((key,)), fix=fix)


def _steps(document: Document, lines: list[int], path: str, mistakes: Mistakes) -> Iterator[Use]:
    found = document.data.get("steps")
    if not isinstance(found, list) or not found:
        fix = "write the steps as a list:\nsteps:\n  - language: [en]\n  - gopher_quality"
        mistakes.add(ConfigError("`steps` must list at least one step", where=document.where(("steps",)), fix=fix))
        return
    for index, item in enumerate(found):
        with mistakes:
            yield _use(document, item, index, f"{path}:{lines[index]}", mistakes)


def _use(document: Document, item: Any, index: int, where: str, mistakes: Mistakes) -> Use:
    name, given = _named(item, where)
    step = catalog.find(name)
    if step is None:
        known = [step.name for step in catalog.STEPS]
        fix = suggestion(name, known) or f"known steps: {', '.join(known)}"
        raise ConfigError(f"unknown step '{name}'", where=where, fix=fix)
    if given is not None and not isinstance(given, dict):
        if not step.main:
            raise ConfigError(f"{name} takes parameters by name", where=where, fix=_usage(step))
        given = {step.main: given}
    path: Path = ("steps", index, name)
    marks = {(): where, **document.section(path).marks}
    return Use(name, _values(step.parameters, Document(given or {}, marks), (), name, mistakes))


def _named(item: Any, where: str) -> tuple[str, Any]:
    if isinstance(item, str):
        return item, None
    if isinstance(item, dict) and len(item) == 1:
        return next(iter(item.items()))
    fix = "write `- gopher_quality`, or `- near_dedup: {threshold: 0.8}`: one step for each `-`"
    raise ConfigError("a step is a name, or a name with parameters", where=where, fix=fix)


def _usage(step: Step) -> str:
    names = ", ".join(parameter.name for parameter in step.parameters)
    return f"parameters of {step.name}: {names}" if names else f"{step.name} has no parameters: write `- {step.name}`"


def _values(
    parameters: tuple[Parameter, ...], document: Document, path: Path, whose: str, mistakes: Mistakes
) -> dict[str, Any]:
    """The value of each parameter: as given, or its default."""
    if whose != "the pipeline":
        mistakes.add(*_unknown_parameters(parameters, document, whose))
    values = {}
    for parameter in parameters:
        values[parameter.name] = parameter.default
        with mistakes:
            values[parameter.name] = _value(parameter, document, whose)
    return values


def _unknown_parameters(parameters: tuple[Parameter, ...], document: Document, whose: str) -> Iterator[ConfigError]:
    known = [parameter.name for parameter in parameters]
    for key in document.data:
        if key not in known:
            fix = suggestion(key, known) or (f"its parameters: {', '.join(known)}" if known else "it has no parameters")
            yield ConfigError(f"{whose} has no parameter '{key}'", where=document.where((key,)), fix=fix)


def _value(parameter: Parameter, document: Document, whose: str) -> Any:
    if parameter.name not in document.data:
        if parameter.default is None:
            raise ConfigError(
                f"{whose} needs '{parameter.name}'", where=document.where(()), fix=f"{parameter.name}: {parameter.help}"
            )
        return parameter.default
    value, where = document.data[parameter.name], document.where((parameter.name,))
    if not _fits(parameter, value):
        raise ConfigError(
            f"{parameter.name} of {whose} must be {_wanted(parameter)}, and is {value!r:.60}",
            where=where,
            fix=f"{parameter.name}: {parameter.help}",
        )
    if parameter.kind == "texts":
        return (value,) if isinstance(value, str) else tuple(value)
    return float(value) if parameter.kind == "float" else value


def _fits(parameter: Parameter, value: Any) -> bool:
    if parameter.kind == "texts":
        items = value if isinstance(value, list) else [value]
        return bool(items) and all(isinstance(item, str) and item for item in items)
    if parameter.kind in ("int", "float"):
        kinds = (int,) if parameter.kind == "int" else (int, float)
        is_number = isinstance(value, kinds) and not isinstance(value, bool)
        return is_number and parameter.low <= value <= parameter.high  # no NaN is
    return isinstance(value, bool) if parameter.kind == "bool" else isinstance(value, str) and bool(value)


def _wanted(parameter: Parameter) -> str:
    if parameter.kind in ("int", "float"):
        what = "a whole number" if parameter.kind == "int" else "a number"
        is_open = parameter.high == Parameter._field_defaults["high"]
        return (
            f"{what}, at least {parameter.low:g}" if is_open else f"{what} from {parameter.low:g} to {parameter.high:g}"
        )
    return {"bool": "true or false", "str": "text", "texts": "a text or a list of texts"}[parameter.kind]
