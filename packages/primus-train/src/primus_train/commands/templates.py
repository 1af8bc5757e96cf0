"""`primus config list` and `new`: the templates that are known, and an experiment to edit made from one."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from primus_core.config.files import TEMPLATE
from primus_core.contracts import schedulers
from primus_core.errors import RequestError, suggestion
from primus_core.installed.homes import home_of, how_to_install
from primus_machine.captures.assumed import GPUS_PER_NODE
from primus_machine.files import atomic
from primus_machine.packages import version_of
from primus_train.templates import catalogue
from primus_train.templates.recipe import MODULE, Template

__all__ = ["in_one_line", "list", "new"]

_SETTINGS = 6
"""Where settings stand in an experiment: spaces before them."""


def list(args: argparse.Namespace) -> int:  # noqa: A001  # the command's name
    """A table, or JSON."""
    found = [template for template in catalogue.known() if _has(template, args.words)]
    if args.json:
        sys.stdout.write(json.dumps([_row(template) for template in found], indent=1, ensure_ascii=False) + "\n")
        return 0
    if not found:
        what = f"has {' and '.join(map(repr, args.words))}" if args.words else "is installed"
        homes_of = {word: home_of("backends", word) for word in args.words}
        lacks = [name for name, home in homes_of.items() if home and not version_of(home)]
        more = "".join(f"; the backend '{name}' is not installed: {how_to_install(homes_of[name])}" for name in lacks)
        sys.stdout.write(f"no template {what}{more or '; templates come with backends: see `primus plugins`'}\n")
        return 0
    from tabulate import tabulate

    rows: dict[tuple[str, ...], str] = {}
    for template in found:
        line = (template.model, template.backend, template.precision, template.origin)
        rows[line] = ", ".join(filter(None, (rows.get(line), f"{template.gpu}{'*' * bool(template.because)}")))
    shown = [(*line, gpus) for line, gpus in rows.items()]
    headers = ("model", "backend", "precision", "package", "GPUs")
    table = tabulate(shown, headers=headers, tablefmt="simple", disable_numparse=True)
    footnote = "\n* derived: no published numbers\n" if any(template.because for template in found) else ""
    sys.stdout.write(f"{table}\n{footnote}")
    return 0


def _has(template: Template, words: Iterable[str]) -> bool:
    text = f"{template.name} {template.precision} {template.origin}".lower()
    return all(word.lower() in text for word in words)


def _row(template: Template) -> dict[str, Any]:
    return {
        "name": template.name,
        "backend": template.backend,
        "model": template.model,
        "gpu": template.gpu,
        "precision": template.precision,
        "nodes": template.nodes,
        "gpus_per_node": GPUS_PER_NODE,
        "source": template.source,
        "derived": template.because or dict(template.derived),
        "origin": template.origin,
        "where": template.where,
    }


def new(args: argparse.Namespace) -> int:
    """Write it, unless a file of that name is there."""
    name = f"{TEMPLATE}{args.backend}/{args.model}/{args.gpu}"
    template = catalogue.find(name)
    if args.precision.upper() not in ("", template.precision.upper()):
        template = _in_precision(template, args.precision.upper())
    text = _experiment(template, args.output or "FILE")
    if not args.output:
        sys.stdout.write(text)
        return 0
    if os.path.lexists(args.output):
        raise RequestError(f"{args.output} is there already", fix="name another file, or remove that one")
    try:
        atomic.write_atomically(args.output, text)
    except OSError as error:
        raise RequestError(f"{args.output} cannot be written", why=error.strerror or str(error)) from None
    sys.stdout.write(f"wrote {args.output}\n")
    return 0


def _in_precision(usual: Template, precision: str) -> Template:
    of_model = [one for one in catalogue.known() if one.model == usual.model]
    here = {one.precision.upper(): one for one in of_model if (one.backend, one.gpu) == (usual.backend, usual.gpu)}
    if precision in here:
        return here[precision]
    others = [f"--backend {one.backend} --gpu {one.gpu}" for one in of_model if one.precision.upper() == precision]
    raise RequestError(
        f"there is no template for {usual.model} with {usual.backend} on '{usual.gpu}' in {precision}",
        why=f"known: {', '.join(filter(None, here))}",
        fix=f"in {precision}: {', or '.join(others)}" if others else suggestion(precision, here) or "use one of these",
    )


def _experiment(template: Template, path: str) -> str:
    """The whole file, comments included."""
    nodes = f"{template.nodes} node{'s' * (template.nodes > 1)} with {GPUS_PER_NODE} {template.gpu} each"
    where = schedulers.launch(template.nodes) if template.nodes > 1 else "direct"
    head = [
        f"{template.model} with {template.backend}{template.precision and f' in {template.precision}'}, for {nodes}.",
        "",
        f"  primus config validate {shlex.quote(path)} --gpu {template.gpu}"
        + (f" --nodes {template.nodes}" if template.nodes > 1 else ""),
        f"  primus {where} -- train pretrain --config {shlex.quote(path)}",
        "",
        *_provenance(template),
    ]
    config = [f"    config: {template.config}"] if template.config else []
    lines = [
        *(f"# {line}".rstrip() for line in head),
        f"exp_name: {template.model}-pretrain",
        "",
        "modules:",
        f"  {MODULE}:",
        f"    framework: {template.backend}",
        *config,
        f"    model: {template.model if template.written_out is None else in_one_line(template.written_out)}",
        "",
        "    overrides:",
        *_settings(template.settings.data, "", template.derived),
    ]
    return "\n".join(lines) + "\n"


def _provenance(template: Template) -> Iterator[str]:
    yield f"From {template.name} of {template.origin}."
    if template.source:
        yield "Its numbers are those of"
        yield f"  {template.source}"
        if template.derived:
            yield "except settings marked as derived, which are neither published nor measured."
    else:
        yield f"Derived (neither published nor measured): {template.because}."


def _settings(data: Mapping[str, Any], before: str, derived: Mapping[str, str]) -> Iterator[str]:
    indent = " " * (_SETTINGS + 2 * before.count("."))
    for key, value in data.items():
        name = f"{before}{key}"
        why = f"  # derived: {derived[name]}" if name in derived else ""
        if isinstance(value, Mapping) and value:
            yield f"{indent}{key}:{why}"
            yield from _settings(value, f"{name}.", derived)
        else:
            yield f"{indent}{key}: {in_one_line(value)}{why}"


def in_one_line(value: Any) -> str:
    """Return a value as YAML on one line."""
    import yaml

    plain = dict(value) if isinstance(value, Mapping) else value
    return yaml.safe_dump(plain, default_flow_style=True, width=10**6, allow_unicode=True).removesuffix("...\n").strip()
