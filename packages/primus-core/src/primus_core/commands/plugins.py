"""List installed plugins, and whether they load."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from primus_core.installed import data_folders
from primus_core.plugins.catalogue import Catalogue, Plugin
from primus_core.request.arguments import Parser, parse_segment
from primus_machine.errors import PrimusError, RequestError
from primus_machine.host import HostRoot

__all__ = ["parser", "run"]

_KINDS = data_folders.KINDS | {"tasks", "runtimes", "backends", "hooks", "commands", "config", "schedulers",
                               "launchers", "checks", "benchmarks", "comparisons"}  # fmt: skip
"""Those that Primus knows, and can load."""
_EPILOG = """examples:
  primus plugins
  primus plugins --json"""


def parser() -> Parser:
    """The command's parser."""
    parser = Parser(prog="primus plugins", epilog=_EPILOG, description="List installed plugins, and whether they load.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def run(words: Sequence[str], layer: str) -> int:
    """List every plugin with its status; a broken one is one line."""
    args = parse_segment(parser(), words)
    catalogue = Catalogue.here(HostRoot(), layer)
    rows = [_row(plugin, catalogue) for plugin in sorted(catalogue.plugins, key=lambda p: (p.kind, p.name, p.source))]
    if args.json:
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
        return 0
    for row in rows:
        sys.stdout.write(f"{row['kind']:<11} {row['name']:<20} {row['source']:<30} {row['status']}\n")
    return 0


def _row(plugin: Plugin, catalogue: Catalogue) -> dict[str, str]:
    row = {"kind": plugin.kind, "name": plugin.name, "source": plugin.source, "target": plugin.target}
    twins = [p.source for p in catalogue.of(plugin.kind) if p.name == plugin.name and p is not plugin]
    if twins:
        return {**row, "status": f"broken: {' and '.join(twins)} has the name too"}
    if plugin.kind not in _KINDS:
        return {**row, "status": "ok"}
    try:
        plugin.load()
    except PrimusError as error:
        # What is wrong in a person's file stands in `what`, with its line; why a package cannot be loaded, in `why`.
        what = error.what if isinstance(error, RequestError) or not error.why else ""
        reason = ": ".join(text.splitlines()[0] for text in (what, error.why) if text)
        return {**row, "status": f"broken: {reason}"}
    return {**row, "status": "ok"}
