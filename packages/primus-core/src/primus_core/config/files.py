"""Reads YAML 1.2 and TOML files into documents: places kept, duplicates refused, `extends` followed."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from typing import Any

import yaml

from primus_core.config import submission
from primus_core.config.document import REFUSED, Document, Path
from primus_machine.documents import bounds
from primus_machine.documents.toml_marks import toml_marks
from primus_machine.documents.yaml_text import Converter, Environ, composed, parse_value
from primus_machine.errors import AlreadyRefused, ConfigError, Mistakes
from primus_machine.files import trust
from primus_machine.files.nearby import nearest_beside
from primus_machine.interpolation import interpolate

__all__ = ["TEMPLATE", "bases", "missing_file", "read", "read_extended"]

TEMPLATE = "template:"
"""What the name of a template begins with, where else a path stands."""

Template = Callable[[str, str], Document]
Each = Callable[[Document, Mistakes], Document]


def _yaml(text: str, path: str, environ: Environ, mistakes: Mistakes) -> Document:
    node = composed(text, path)
    if isinstance(node, yaml.ScalarNode) and not (node.value or node.style):
        node = None  # `---` alone
    marks: dict[Path, str] = {(): path}
    reader = Converter(path=path, environ=environ)
    try:
        data = {} if node is None else reader.value(node, (), marks)
    except RecursionError:
        raise ConfigError("an alias refers to itself", where=path, fix="write the value instead of the alias") from None
    mistakes.add(*reader.mistakes.found)
    return _document(data, marks, path)


def _document(data: Any, marks: dict[Path, str], path: str) -> Document:
    if not isinstance(data, dict):
        fix = "write `key: value`; a list belongs below a key"
        raise ConfigError("the file must hold keys and values at its top level", where=f"{path}:1", fix=fix)
    return Document(data, marks)


def _toml(text: str, path: str, environ: Environ, mistakes: Mistakes) -> Document:
    import tomllib  # TOML files are the rarer kind

    if number := bounds.deep_key_line(text):
        raise ConfigError("the file is nested too deeply", where=f"{path}:{number}", why=bounds.TOO_DEEP)
    try:
        data = tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError is one, and so is a number of thousands of digits
        line = re.search(r"line (\d+)", str(error))
        where = f"{path}:{line[1]}" if line else path
        raise ConfigError("this is not valid TOML", where=where, why=str(error)) from None
    except RecursionError:
        number = max(enumerate(text.split("\n"), 1), key=lambda line: line[1].count("[") + line[1].count("{"))[0]
        raise ConfigError("the file is nested too deeply", where=f"{path}:{number}", why=bounds.TOO_DEEP) from None
    bounds.check_depth(data, f"{path}:1")
    marks = {(): path, **toml_marks(text, path, data)}

    def fill(value: Any, here: Path) -> Any:
        if isinstance(value, dict):
            return {k: kept(v, (*here, k)) for k, v in value.items()}
        if isinstance(value, list):
            return [fill(v, (*here, i)) for i, v in enumerate(value)]
        if hasattr(value, "isoformat"):  # a date; YAML 1.2 has none, and neither has JSON
            return value.isoformat()
        if isinstance(value, str) and "${" in value:
            text = interpolate(value, environ, Document({}, marks).where(here))
            # TOML knows no unquoted text: what is nothing but a variable has the type of its value
            return parse_value(text) if re.fullmatch(r"\$\{[^{}]*\}", value) else text
        return value

    def kept(value: Any, here: Path) -> Any:
        with mistakes:
            return fill(value, here)
        return REFUSED

    return _document(fill(data, ()), marks, path)


def read(
    path: str, environ: Environ, mistakes: Mistakes | None = None, opener: bounds.Opener | None = None
) -> Document:
    """The document in the YAML or TOML file `path`, with `${VAR}` and `${VAR:default}` filled in from `environ`.

    With `mistakes`, those of single values go there, and the values are `REFUSED`. `opener`, as `open` takes it, says
    whether the file is believed: it was looked at before, and may be another one by now.

    Raises:
        ConfigError: the file is missing or unreadable, is malformed, repeats a key, or needs an unset variable.
    """
    return _one(path, environ, mistakes, opener, None)


def _one(
    path: str, environ: Environ, mistakes: Mistakes | None, opener: bounds.Opener | None, each: Each | None
) -> Document:
    found = Mistakes()
    document = _read(path, environ, found, opener)
    document = each(document, found) if each else document
    if mistakes is None:
        found.refuse()
    else:
        mistakes.add(*found.found)
    return document


def _read(path: str, environ: Environ, mistakes: Mistakes, opener: bounds.Opener | None) -> Document:
    try:
        text = bounds.text_of(path, opener)
    except FileNotFoundError:
        raise missing_file(path) from None
    except IsADirectoryError:
        raise ConfigError("it is a folder", where=path, fix="name a file in it") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("the file cannot be read", where=path, why=str(error)) from None
    return (_toml if path.endswith(".toml") else _yaml)(text, path, environ, mistakes)._replace(files=(path,))


def missing_file(path: str, *, where: str = "", folder: str = "", kind: str = "file") -> ConfigError:
    """Return the error for a configuration file, or a file that it names, that is missing.

    Args:
        path: as it was typed.
        where: the file and line that name it; empty: the command line does.
        folder: what a relative path is relative to; empty: the current folder.
        kind: `file` or `folder`.
    """
    relative = f": it is relative to {'this file' if where else 'the current folder'}"
    whole = os.path.abspath(os.path.join(folder, path))
    near = nearest_beside(whole, path)
    return ConfigError(
        f"there is no {kind} '{path}'",
        where=where,
        why=f"looked for {whole}",
        fix=f"did you mean '{near}'?" if near else f"check the path{'' if os.path.isabs(path) else relative}",
        options=() if where else (path,),
        meant=shlex.quote(near) if near else None,
    )


def bases(document: Document) -> list[str]:
    """What `extends:` names.

    Raises:
        ConfigError: it is neither text nor a list of texts.
    """
    named = document.data.get("extends", [])
    if named is REFUSED:
        raise AlreadyRefused("extends")
    found = named if isinstance(named, list) else [named]
    if not all(isinstance(base, str) for base in found):
        where = document.where(("extends",))
        raise ConfigError("`extends` takes a path or a list of paths", where=where, fix="extends: ./base.yaml")
    return found


def read_extended(
    path: str,
    environ: Environ,
    chain: tuple[str, ...] = (),
    mistakes: Mistakes | None = None,
    opener: bounds.Opener | None = None,
    template: Template | None = None,
    each: Each | None = None,
) -> Document:
    """`read`, merged over the files that its `extends:` names (paths relative to it; a later one wins).

    `template` reads what `template:NAME` means, which may then stand wherever a path does. `each` is given each file.

    Raises:
        ConfigError: as `read`, or the files extend each other in a circle.
    """
    if path.startswith(TEMPLATE):
        return _from_template(path, "", template)
    chain = (*chain, os.path.realpath(path))
    document = _one(path, environ, mistakes, opener, each)
    where = document.where(("extends",))
    result = Document({}, {})
    for base in bases(document):
        result = _base(base, path, where, environ, chain, mistakes, template, each).merged_onto(result)
    document.data.pop("extends", None)
    return document.merged_onto(result)


def _base(
    base: str,
    path: str,
    where: str,
    environ: Environ,
    chain: tuple[str, ...],
    mistakes: Mistakes | None,
    template: Template | None,
    each: Each | None,
) -> Document:
    if base.startswith(TEMPLATE):
        return _from_template(base, where, template)
    target = submission.path(os.path.join(os.path.dirname(submission.original(path)), base), environ)
    if not os.path.isfile(target):
        raise missing_file(base, where=where, folder=os.path.dirname(submission.original(path)))
    believed = trust.of(environ)
    believed.require(target, "the base file")
    if (real := os.path.realpath(target)) in chain:
        circle = " → ".join(os.path.basename(p) for p in (*chain[chain.index(real) :], real))
        raise ConfigError("files extend each other in a circle", where=where, why=circle, fix="remove this `extends`")
    return read_extended(target, environ, chain, mistakes, believed.opener, template, each)


def _from_template(name: str, where: str, template: Template | None) -> Document:
    if template is None:
        raise ConfigError(f"'{name}' is a template; a template is not allowed here", where=where, fix="name a file")
    return template(name, where)
