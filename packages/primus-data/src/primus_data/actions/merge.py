"""Merge several prefixes into one."""

from __future__ import annotations

import argparse
import os
import sys

from primus_core.plan.plan import Requirement
from primus_core.request.arguments import Parser
from primus_data.actions import arguments
from primus_data.contract import Here
from primus_machine.files import plain_json
from primus_machine.text import printable

__all__ = ["ACTION"]


class _Merge:
    name = "merge"
    epilog = """examples:
  primus data merge --input web_text_document books_text_document --output-prefix corpus
  primus data merge --input parts/ --output-prefix corpus"""
    is_shared = False

    def add_arguments(self, parser: Parser) -> None:
        parser.add_argument("--input", nargs="+", required=True, metavar="PREFIX",
                            help="prefixes in the order of the output; a folder: all in it, by name")  # fmt: skip
        arguments.add_output(parser)
        parser.add_argument("--json", action="store_true", help="print JSON")

    def check(self, args: argparse.Namespace, cwd: str) -> tuple[Requirement, ...]:
        return arguments.require_output(args.output_prefix, cwd)

    def run(self, args: argparse.Namespace, here: Here) -> int:
        from primus_data.joining.merging import inputs, merge  # numpy

        found = merge(inputs([arguments.without_suffix(path) for path in args.input]), args.output_prefix)
        if args.json:
            sys.stdout.write(plain_json.dumps(found._asdict(), indent=1) + "\n")
        else:
            amount = arguments.amount(found.documents, found.tokens)
            name = printable(os.path.relpath(found.prefix))
            sys.stdout.write(f"{name}: {amount}, merged from {found.inputs:,} inputs\n")
        return 0


ACTION = _Merge()
