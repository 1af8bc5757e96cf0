"""Show how many documents and tokens there are, how long they are, and what they say."""

from __future__ import annotations

import argparse
import shutil
import sys

from primus_core.plan.plan import Requirement
from primus_core.request.arguments import Parser
from primus_data.actions import arguments
from primus_data.contract import Here
from primus_machine.errors import Mistakes, RequestError
from primus_machine.files import plain_json

__all__ = ["ACTION"]

_WIDEST = 100
_MOST = {"samples": 10_000, "tokens": 1_000_000, "top": 10_000}
"""What fits into memory, and what anybody reads."""


class _Inspect:
    name = "inspect"
    epilog = """examples:
  primus data inspect corpus_text_document
  primus data inspect corpus_text_document --samples 3 --tokenizer-model tokenizer.json
  primus data inspect corpus_text_document --document 17 --tokens 1000 --tokenizer-model tokenizer.json"""
    is_shared = False

    def add_arguments(self, parser: Parser) -> None:
        arguments.add_prefix(parser)
        parser.add_argument("--exact", action="store_true", help="count everything; by default, large data is sampled")
        parser.add_argument("--samples", type=arguments.count, default=0, metavar="N",
                            help="show the beginning of N documents, evenly over the data")  # fmt: skip
        parser.add_argument("--document", type=arguments.count, action="append", default=[], metavar="N",
                            help="show the beginning of document N, counted from 0; repeatable")  # fmt: skip
        parser.add_argument("--tokens", type=arguments.count, default=128, metavar="N",
                            help="show at most N tokens of a document (default: 128)")  # fmt: skip
        parser.add_argument("--top", type=arguments.count, default=10, metavar="N",
                            help="show the N most frequent tokens (default: 10)")  # fmt: skip
        arguments.add_tokenizer(parser)
        parser.add_argument("--json", action="store_true", help="print JSON")

    def check(self, args: argparse.Namespace, cwd: str) -> tuple[Requirement, ...]:
        mistakes = Mistakes()
        for name, most in _MOST.items():
            if getattr(args, name) > most:
                mistakes.add(RequestError(f"--{name} {getattr(args, name)} is too much", fix=f"at most {most:,}"))
        found: tuple[Requirement, ...] = ()
        with mistakes:
            found = arguments.require_tokenizer(args, cwd)
        mistakes.refuse()
        return (*arguments.require_prefix(args.prefix, cwd), *found)

    def run(self, args: argparse.Namespace, here: Here) -> int:
        from primus_data.inspection import view
        from primus_data.inspection.summary import Wanted, summarize

        tokenizer = arguments.tokenizer(args)
        wanted = Wanted(
            args.exact, args.samples, args.document, args.tokens, args.top, tokenizer.decode if tokenizer else None
        )
        found = summarize(arguments.without_suffix(args.prefix), wanted)
        if args.json:
            sys.stdout.write(plain_json.dumps(found.to_dict(), indent=1) + "\n")
        else:
            width = min(shutil.get_terminal_size().columns, _WIDEST)
            sys.stdout.write(view.text(found, width, plain=not arguments.draws_blocks()))
        return 0


ACTION = _Inspect()
