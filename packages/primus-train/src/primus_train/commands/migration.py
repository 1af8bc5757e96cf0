"""`primus config migrate`: an experiment with the names of another version of its framework."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from primus_core.config.document import Document, Path, at, dotted
from primus_core.errors import ConfigError, MachineError, Mistakes, RequestError
from primus_core.installed import homes
from primus_core.plugins.catalogue import Catalogue
from primus_machine.documents import bounds
from primus_machine.documents.yaml_text import parse_saved
from primus_machine.files import atomic
from primus_machine.host import HostRoot
from primus_machine.units import counted
from primus_train.backend import Backend, load_backend
from primus_train.commands.migrated_text import Change, edited, with_values
from primus_train.commands.resolved import as_yaml, write_text
from primus_train.commands.written_paths import make_absolute, presets_beside
from primus_train.migration import Migration

__all__ = ["migrate"]

KeyPath = tuple[str, ...]
_EXAMPLE = "megatron-core==0.19"
_NAMES = {"megatron-core": "megatron"}
"""Frameworks that are not called as their backend."""


class _Source(NamedTuple):
    """A file, as it is written."""

    path: str
    text: str
    data: dict[str, Any]
    own_form: bool = False
    """It is a file of the framework, or TOML: only its data is kept."""


def migrate(args: argparse.Namespace) -> int:
    """Write the new file, and say on stderr what became of settings."""
    framework, _, version = args.to.partition("==")
    if not framework or not version:
        raise _without_framework(args)
    if args.output and os.path.lexists(args.output):
        raise RequestError(f"{args.output} is there already", fix="name another file, or remove that one")
    catalogue = Catalogue.here(HostRoot(), args.layer)
    try:
        backend = load_backend(catalogue, _NAMES.get(framework, framework))
    except MachineError:
        _refuse_other(args.file, _NAMES.get(framework, framework))
        raise
    if not hasattr(backend, "migration"):
        raise RequestError(f"the backend '{backend.name}' cannot migrate experiments")
    migration = backend.migration(version)
    source = _read(args.file, backend)
    modules = [(name, module) for name, module in _modules(source) if module.get("framework") == backend.name]
    if not modules:
        raise RequestError(f"no module of {args.file} trains with {migration.framework}", fix="see `framework:` there")
    changes: list[Change] = []
    mistakes = Mistakes()
    for name, module in modules:
        changes += _changes(migration, ("modules", name, "overrides"), module.get("overrides"), mistakes, args.file)
    mistakes.refuse()
    _apply(source.data, changes)
    text, whole = edited(source.text, source.data, changes) if not source.own_form else (as_yaml(source.data), False)
    sys.stderr.write(_report(migration, args.file, changes))
    if extended := source.data.get("extends"):
        sys.stderr.write(f"note: what it extends is not changed: {extended}\n")
    if _is_elsewhere(args):
        found = make_absolute(Document(source.data, {(): source.path}, (source.path,)), catalogue)
        text, is_edited = with_values(text, source.data, found) if found else (text, True)
        whole = whole and is_edited
        sys.stderr.write(_path_notes(source, found))
    if not whole:
        sys.stderr.write("note: comments are lost, and the file is rewritten\n")
    return _write(args.output, text)


def _is_elsewhere(args: argparse.Namespace) -> bool:
    """Whether the new file may be in another folder than the old one: who redirects stdout says nothing of it."""
    old, new = (os.path.realpath(os.path.dirname(path)) for path in (args.file, args.output))
    return not args.output or old != new


def _path_notes(source: _Source, found: Mapping[Path, Any]) -> str:
    names = [dotted(path).rpartition("overrides.")[2] for path in found]
    beside = presets_beside(source.data)
    return f"note: paths are absolute in the new file: {', '.join(names)}\n" * bool(names) + (
        f"note: the new file needs beside it: {', '.join(beside)}\n" * bool(beside)
    )


def _refuse_other(path: str, name: str) -> None:
    """Refuse a file whose modules name other frameworks alone: to install this one would not help."""
    try:
        named = re.findall(_FRAMEWORK, bounds.text_of(path), re.M)
    except (OSError, UnicodeDecodeError):
        return
    if named and name not in named:
        what = f"no module of {path} trains with {name}"
        own = next((framework for framework, one in _NAMES.items() if one == named[0]), named[0])
        raise RequestError(what, why=f"it has: {', '.join(sorted({*named}))}", fix=f"--to {own}==VERSION")


_FRAMEWORK = r"^ *framework: *['\"]?(\w+)"
_JOINED = r"([a-z]+(?:-core)?)(?:=|[-@:\s]v?(?=\d))=*(.+)"
"""`torchtitan=0.3`, `torchtitan-0.3`."""


def _without_framework(args: argparse.Namespace) -> RequestError:
    """The error for a version without its framework, or the reverse: that of the file, where it names one."""
    if pair := re.fullmatch(_JOINED, args.to):
        given = "==".join(pair.groups())
        what = f"'{args.to}' is not FRAMEWORK==VERSION"
        name = f"{pair[1]}=" if "=" in args.to else given  # what follows `=` is kept
        return RequestError(what, fix=f"--to {given}", options=[args.to], meant=name)
    word = args.to.strip("=").removeprefix("v")
    is_version, is_file = word[:1].isdigit(), word.endswith((".yaml", ".yml", ".toml"))
    known = {*Catalogue.here(HostRoot(), args.layer).names("backends"), *homes.names("backends"), *_NAMES}
    try:
        found = re.search(_FRAMEWORK, bounds.text_of(args.file), re.M) if word not in known else None
    except (OSError, UnicodeDecodeError):
        found = None
    backend = found[1] if found else ""
    framework = next((name for name, one in _NAMES.items() if one == backend), backend)
    if is_file or (word and word not in known and not is_version):  # `--to jax`
        fix = f"--to {framework or 'FRAMEWORK'}==VERSION{f' -o {args.to}' * is_file}"
        return RequestError(f"'{args.to}' is not FRAMEWORK==VERSION", fix=fix)
    meant = f"{framework}=={word}" if framework else None
    fix = f"--to {meant or (f'torchtitan=={word}' if is_version else f'{word}==VERSION' if word else _EXAMPLE)}"
    return RequestError(f"'{args.to}' is not FRAMEWORK==VERSION", fix=fix, options=[args.to], meant=meant)


def _write(output: str, text: str) -> int:
    if not output:
        write_text(text)
        return 0
    if output.endswith((".toml", ".json")):
        stem = os.path.splitext(output)[0]
        raise RequestError(f"'{output}' would hold YAML", why="experiments are written as YAML", fix=f"-o {stem}.yaml")
    try:
        atomic.write_atomically(output, text)
    except OSError as error:
        raise RequestError(f"{output} cannot be written", why=error.strerror or str(error)) from None
    write_text(f"wrote {output}\n")
    return 0


def _read(path: str, backend: Backend) -> _Source:
    """Return the file with nothing filled in; one of the framework's own form as an experiment."""
    try:
        text = bounds.text_of(path)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "") or str(error)
        raise ConfigError(f"'{path}' cannot be read", why=why, fix="check the path") from None
    is_toml = path.endswith(".toml")
    data = _toml(text, path) if is_toml else parse_saved(text, path)
    if not isinstance(data, dict):
        raise ConfigError("the file must hold keys and values at its top level", where=f"{path}:1")
    if adopted := backend.adopt(data):
        return _Source(path, text, _plain(adopted), own_form=True)
    return _Source(path, text, data, own_form=is_toml)


def _toml(text: str, path: str) -> dict[str, Any]:
    import tomllib  # TOML files are the rarer kind

    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise ConfigError("this is not valid TOML", where=path, why=str(error)) from None


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _plain(value) if isinstance(value, Mapping) else value for key, value in data.items()}


def _modules(source: _Source) -> Iterator[tuple[str, Mapping[str, Any]]]:
    modules = source.data.get("modules")
    for name, module in modules.items() if isinstance(modules, Mapping) else ():
        if isinstance(module, Mapping):
            yield name, module


def _changes(migration: Migration, path: KeyPath, settings: object, mistakes: Mistakes, file: str) -> list[Change]:
    """Return what changes among the settings of a module."""
    if not isinstance(settings, Mapping):
        return []
    found: list[Change] = []
    renamed: dict[str, Any] = {}
    nested = Document(dict(settings)).nested().data
    for keys, value in _settings(migration, settings, ()):
        name = dotted(tuple(part for key in keys for part in key.split(".")))
        fate = migration.fate(name, value)
        if fate is None:
            continue
        other = at(nested, tuple(fate.to.split("."))) if fate.to else None
        other = renamed.get(fate.to) if other is None else other
        if other is not None and other != value:
            what = f"'{name}' and '{fate.to}' are the same setting with different values"
            mistakes.add(ConfigError(what, where=file, fix=f"keep '{fate.to}'"))
        renamed[fate.to] = value if fate.to else None
        found.append(Change(path, keys, name, value, fate, is_double=other is not None))
    return found


def _settings(migration: Migration, data: Mapping[str, Any], before: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """Yield the keys and the value of each setting. One that takes a mapping is one setting."""
    for key, value in data.items():
        keys = (*before, str(key))
        name = ".".join(keys)
        if isinstance(value, Mapping) and value and name not in migration.known and not migration.judge(name, value):
            yield from _settings(migration, value, keys)
        else:
            yield keys, value


def _apply(data: dict[str, Any], changes: list[Change]) -> None:
    """Rename and remove, in place, and without sections that have become empty."""
    for change in changes:
        settings = at(data, change.module)
        folders = [settings]
        for key in change.keys[:-1]:
            folders.append(folders[-1][key])
        if change.is_in_place:
            kept = [(change.new_key if key == change.keys[-1] else key, value) for key, value in folders[-1].items()]
            folders[-1].clear()
            folders[-1].update(kept)
            continue
        del folders[-1][change.keys[-1]]
        for folder, key in zip(reversed(folders[:-1]), reversed(change.keys[:-1]), strict=True):
            if not folder[key]:
                del folder[key]
        if change.is_moved:
            settings[change.fate.to] = change.value
    for path in {change.module for change in changes}:
        if not at(data, path):
            del at(data, path[:-1])[path[-1]]


def _report(migration: Migration, file: str, changes: list[Change]) -> str:
    """Return what became of each setting, renamed ones first."""
    target = f"{migration.framework} {migration.version}"
    if not changes:
        return f"{file}: {target} has all settings\n"
    renamed = [change for change in changes if change.fate.to]
    gone = [change for change in changes if not change.fate.to]
    lines = [f"{file} for {target}: {len(renamed)} renamed, {counted(len(gone), 'setting')} removed"]
    lines += [f"  renamed  {one.name} -> {one.fate.to}" + f" ({one.fate.why})" * bool(one.fate.why) for one in renamed]
    for one in gone:
        lines.append(f"  removed  {one.name}: {one.fate.why}")
        lines += [f"           {one.fate.fix}"] if one.fate.fix else []
    return "\n".join(lines) + "\n"
