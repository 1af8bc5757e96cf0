"""A file of experiment templates: one model with one backend, on several GPUs; read, and every word of it checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any

from primus_core.config import files
from primus_core.config.document import Document, Path, dotted
from primus_core.errors import ConfigError, suggestion
from primus_machine import strict

__all__ = ["MODULE", "Template", "leaves", "read"]

MODULE = "pre_trainer"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What stands for all GPUs or, below `gpus:`, for one of them, which wins."""

    settings: dict[str, Any] = field(default_factory=dict)
    source: str = ""
    """Where the numbers are published: a URL, or `name:rest` with a name of `sources`."""
    derived: str | dict[str, str] = field(default_factory=dict)
    """Why a setting has its value although nobody published or measured it; text: so it is with all of them."""
    nodes: Annotated[int, ("gt", 0)] | None = None
    """How many nodes of eight GPUs it is for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Precise(_Part):
    """The same, with what stands for another precision than the usual one."""

    precisions: dict[str, _Part] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recipe(_Precise):
    """A file: one model with one backend."""

    precision: str = ""
    """The usual one, `BF16`."""
    config: str = ""
    """The framework preset that it stands on."""
    model: dict[str, Any] | None = None
    """The model, written out, where the backend knows none by the name of the file."""
    sources: dict[str, str] = field(default_factory=dict)
    """What a name in `source` stands for; `{gpu}` is the GPU, `{precision}` the precision."""
    gpus: dict[str, _Precise]


@dataclass(frozen=True, slots=True)
class Template:
    """One model, backend, GPU and precision."""

    backend: str
    model: str
    gpu: str
    precision: str
    is_usual: bool
    """Whether the precision is the usual one, which the name does not say."""
    nodes: int
    config: str
    written_out: Mapping[str, Any] | None
    """The model's settings, where the backend does not know it by name."""
    settings: Document
    source: str
    """Where its numbers are published; empty: nowhere."""
    derived: Mapping[str, str]
    """Settings that are not from there, by dotted name, and why they are as they are."""
    because: str
    """Why the whole is as it is, where nothing is published; or empty."""
    origin: str
    """The package: `primus-megatron 0.1.0`."""
    where: str

    @property
    def name(self) -> str:
        """As `extends:` says it."""
        return f"{files.TEMPLATE}{self.backend}/{self.model}/{self.variant}"

    @property
    def variant(self) -> str:
        """`MI300X`, `MI300X-FP8`."""
        return self.gpu if self.is_usual else f"{self.gpu}-{self.precision}"

    def document(self) -> Document:
        """An experiment, whole but for what is a person's own."""
        model = self.model if self.written_out is None else dict(self.written_out)
        module: dict[str, Any] = {"framework": self.backend, "model": model}
        module |= {"config": self.config} if self.config else {}
        data = {"exp_name": f"{self.model}-pretrain", "modules": {MODULE: module}}
        head = Document(data, {(): self.where, **{path: self.where for path, _ in leaves(data)}})
        return self.settings.below(("modules", MODULE, "overrides")).merged_onto(head)


@cache
def read(backend: str, model: str, path: str, origin: str) -> tuple[Template, ...]:
    """The templates in the file `path` of the package `origin`.

    Raises:
        ConfigError: it cannot be read, or something in it is wrong.
    """
    document = files.read_extended(path, {})
    try:
        recipe = strict.read(_Recipe, document.data)
    except strict.ValidationError as error:
        raise _explain(error, document) from None
    return tuple(
        _template(backend, model, gpu, precision, recipe, document, origin)
        for gpu, part in recipe.gpus.items()
        for precision in ("", *dict.fromkeys((*recipe.precisions, *part.precisions)))
    )


def leaves(data: Mapping[str, Any], before: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Each setting with its path; an empty section is one."""
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*before, key))
        else:
            yield (*before, key), value


_Chain = tuple[tuple[Path, _Part], ...]
"""What stands for one GPU and precision, with its place in the file, weakest first."""


def _template(
    backend: str, model: str, gpu: str, precision: str, recipe: _Recipe, document: Document, origin: str
) -> Template:
    chain = _chain(recipe, gpu, precision)
    settings = Document({})
    for path, _ in chain:
        settings = document.section((*path, "settings")).merged_onto(settings)
    template = Template(
        backend=backend,
        model=model,
        gpu=gpu,
        precision=precision or recipe.precision,
        is_usual=not precision,
        nodes=next((part.nodes for _, part in reversed(chain) if part.nodes), 1),
        config=recipe.config,
        written_out=recipe.model,
        settings=settings,
        source=_source(recipe, chain, gpu, precision or recipe.precision),
        derived={name: why for _, part in chain for name, why in _reasons(part).items()},
        because=_because(chain),
        origin=origin,
        where=document.where(("gpus", gpu)),
    )
    _check(template, chain, document)
    return template


def _chain(recipe: _Recipe, gpu: str, precision: str) -> _Chain:
    chain: tuple[tuple[Path, _Precise], ...] = (((), recipe), (("gpus", gpu), recipe.gpus[gpu]))
    precise = ((path, part.precisions.get(precision)) for path, part in chain)
    return (*chain, *(((*path, "precisions", precision), part) for path, part in precise if part))


def _because(chain: _Chain) -> str:
    """Why the whole is as it is; empty where it is published."""
    for _, part in reversed(chain):
        if part.source or isinstance(part.derived, str):
            return part.derived if isinstance(part.derived, str) else ""
    return ""


def _source(recipe: _Recipe, chain: _Chain, gpu: str, precision: str) -> str:
    if _because(chain):
        return ""
    source = next((part.source for _, part in reversed(chain) if part.source), "")
    name, _, rest = source.partition(":")
    whole = recipe.sources[name] + rest if name in recipe.sources else source
    return whole.replace("{gpu}", gpu).replace("{precision}", precision)


def _reasons(part: _Part) -> Mapping[str, str]:
    return part.derived if isinstance(part.derived, dict) else {}


def _check(template: Template, chain: _Chain, document: Document) -> None:
    if not template.source and not template.because:
        what = f"{template.variant}: it has no source for its numbers"
        raise ConfigError(what, where=template.where, fix="add `source:`, or `derived:` with the reason")
    names = {dotted(path) for path, _ in leaves(template.settings.data)}
    for path, name in ((path, name) for path, part in chain for name in _reasons(part) if name not in names):
        raise ConfigError(
            f"'{name}' is derived, and not set",
            where=document.where((*path, "derived", name)),
            fix=suggestion(name, names) or "set it below `settings:`, or remove it",
        )


def _explain(error: strict.ValidationError, document: Document) -> ConfigError:
    # A misspelt key before the key that it leaves missing: its message has the line and the suggestion.
    first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    path: Path = tuple(first["loc"])
    where, name = document.where(path), dotted(path)
    if first["type"] == "extra_forbidden":
        kind = _Part if "precisions" in path[:-1] else _Precise if path[0] == "gpus" else _Recipe
        keys = strict.keys(kind)
        near = suggestion(str(path[-1]), keys) or "settings of the framework belong below `settings:`"
        return ConfigError(f"unknown key '{name}'", where=where, why=f"known here: {', '.join(keys)}", fix=near)
    if first["type"] == "missing":
        return ConfigError(f"'{name}' is missing", where=where, fix="docs/config.md has an example")
    return ConfigError(f"'{name}' is {first['input']!r}", where=where, why=first["msg"])
