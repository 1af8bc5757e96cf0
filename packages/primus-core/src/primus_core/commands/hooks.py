"""List the hooks and patches that run around a launch, in their order."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

from primus_core.hooks import scripts
from primus_core.hooks.folders import hook_folders
from primus_core.planning.options import task_parser
from primus_core.plugins.catalogue import Catalogue
from primus_core.request.arguments import Parser, parse_segment
from primus_core.runs.rundir import short
from primus_machine import facts as machine
from primus_machine.errors import RequestError, suggestion
from primus_machine.files import trust
from primus_machine.host import HostRoot

__all__ = ["parser", "run"]

_EPILOG = """examples:
  primus hooks list
  primus hooks list train pretrain
  primus hooks list train pretrain --config exp.yaml --hooks ./site-hooks
  primus hooks list bench gemm --json"""


def parser() -> Parser:
    """The command's parser."""
    parser = Parser(prog="primus hooks", epilog=_EPILOG, description="List hooks and patches that run around a launch.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="{list}")
    listing = commands.add_parser("list", help="List scripts and plugins that would run, in order.", epilog=_EPILOG)
    listing.add_argument("task", nargs="*", metavar="TASK [ACTION]", help="list only what runs for this task")
    listing.add_argument("--config", metavar="FILE", default="", help="include the hooks beside this experiment")
    listing.add_argument(
        "--hooks", metavar="DIR", action="append", default=[], help="include the hooks in this folder (repeatable)"
    )
    listing.add_argument("--patch", metavar="FILE", action="append", default=[], help="include this patch (repeatable)")
    listing.add_argument("--json", action="store_true", help="print JSON")
    return parser


def run(words: Sequence[str], layer: str) -> int:
    """List them; nothing runs."""
    args = parse_segment(parser(), words or ["list"])
    host = HostRoot()
    catalogue = Catalogue.here(host, layer)
    facts = machine.read(host)
    if args.config and not os.path.isfile(args.config):
        from primus_core.config import files  # PyYAML: only an error needs it

        raise files.missing_file(args.config)
    if args.task:
        task, name, rest = catalogue.task(args.task)
        known = task_parser(task, name)
        actions = {*known.first_words, *known.subcommands()}
        if rest and rest[0] not in actions and (near := suggestion(rest[0], actions)):
            raise RequestError(f"'{name}' has no action '{rest[0]}'", fix=near)
        args.task = [*name.split(), *rest]
    named = [path for path in (args.config, *args.task) if os.path.isfile(path)]  # `run FILE`
    beside = os.path.dirname(named[0]) or "." if named else ""
    believed = trust.of(host.environ)
    folders = hook_folders(facts, catalogue.system, beside, args.hooks)
    found = scripts.hook_files(folders, args.task, believed)  # refuses a folder that is not there
    found = found if args.task else _all(folders)
    rows = [{"kind": "hook", "runs": path, "from": "once per node, before the ranks"} for path in found]
    patches = scripts.patch_files([*catalogue.system.patches, *args.patch], facts.cwd, believed)
    rows += [{"kind": "patch", "runs": path, "from": "once per node, after the hooks"} for path in patches]
    rows += [{"kind": "python", "runs": p.target, "from": p.source} for p in catalogue.of("hooks")]
    if args.json:
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
    elif rows:
        from tabulate import tabulate

        shown = [(row["kind"], short(row["runs"]), row["from"]) for row in rows]
        sys.stdout.write(tabulate(shown, headers=("kind", "runs", "")) + "\n")
    else:
        looked = ", ".join(dict.fromkeys(short(folder) for folder in folders)) or "no hooks folder"
        sys.stdout.write(f"no hooks found (looked in {looked})\n")
    return 0


def _all(folders: Sequence[str]) -> list[str]:
    """Every script in the folders, whichever task it is for."""
    found = []
    for folder in folders:
        for place, below, names in os.walk(folder):
            below.sort(key=os.fsencode)
            found += [os.path.join(place, n) for n in sorted(names, key=os.fsencode) if n.endswith((".sh", ".py"))]
    return found
