"""Check the index against the data, the tokens against a vocabulary, and for duplicate documents."""

from __future__ import annotations

import argparse
import shutil
import sys
from typing import TYPE_CHECKING

from primus_core.errors import PrimusError
from primus_core.plan.plan import Requirement
from primus_core.request.arguments import Parser, size
from primus_data.actions import arguments
from primus_data.contract import Here
from primus_machine.errors import Mistakes, RequestError
from primus_machine.files import plain_json
from primus_machine.text import printable
from primus_machine.units import counted

if TYPE_CHECKING:
    from primus_data.verification.findings import Report

__all__ = ["ACTION"]

_WIDEST = 100


class _Verify:
    name = "verify"
    epilog = """exit codes: 0 valid, 1 findings, 2 wrong request, 3 the files cannot be read

examples:
  primus data verify corpus_text_document --tokenizer-model tokenizer.json
  primus data verify corpus_text_document --vocab-size 128256 --eod 128001 --max-duplicates 1%
  primus data verify corpus_text_document --fast"""
    is_shared = False

    def add_arguments(self, parser: Parser) -> None:
        arguments.add_prefix(parser)
        parser.add_argument("--fast", action="store_true", help="check sizes and the ends of the index only")
        parser.add_argument("--vocab-size", type=arguments.count, metavar="N", help="tokens must be less than N")
        parser.add_argument("--eod", type=arguments.count, metavar="ID", help="each document must end with this token")
        arguments.add_tokenizer(parser)
        group = parser.add_mutually_exclusive_group()
        group.add_argument("--skip-duplicates", action="store_true", help="do not look for duplicate documents")
        group.add_argument("--max-duplicates", type=arguments.share, default=0.0, metavar="SHARE",
                           help="accept such a share of duplicate documents, such as 1%% (default: none)")  # fmt: skip
        parser.add_argument("--memory", type=size, default=1 << 30, metavar="SIZE",
                            help="memory for the search for duplicates; if more documents differ, a share of them "
                            "is compared (default: 1GiB, for 9.5 million documents)")  # fmt: skip
        parser.add_argument("--json", action="store_true", help="print JSON")

    def check(self, args: argparse.Namespace, cwd: str) -> tuple[Requirement, ...]:
        mistakes = Mistakes()
        given = ("vocab_size", "eod", "tokenizer_model", "skip_duplicates", "max_duplicates")
        for name in (name for name in given if args.fast and getattr(args, name) not in (None, "", False, 0.0)):
            what = f"--{name.replace('_', '-')} contradicts --fast, which reads no tokens"
            mistakes.add(RequestError(what, fix="remove one of them"))
        if not args.memory:
            mistakes.add(RequestError("--memory 0 leaves no memory", fix="name a size such as 1GiB"))
        found: tuple[Requirement, ...] = ()
        with mistakes:
            found = arguments.require_tokenizer(args, cwd)
        mistakes.refuse()
        return (*arguments.require_prefix(args.prefix, cwd), *found)

    def run(self, args: argparse.Namespace, here: Here) -> int:
        from primus_data.verification import view  # numpy
        from primus_data.verification.verify import Wanted, verify

        tokenizer = arguments.tokenizer(args)
        wanted = Wanted(
            fast=args.fast,
            vocab_size=tokenizer.vocab_size if tokenizer and args.vocab_size is None else args.vocab_size,
            eod=tokenizer.eod if tokenizer and args.eod is None else args.eod,
            duplicates=not args.skip_duplicates,
            allowed_duplicates=args.max_duplicates,
            memory=args.memory,
        )
        found = verify(arguments.without_suffix(args.prefix), wanted)
        width = min(shutil.get_terminal_size().columns, _WIDEST)
        shown = plain_json.dumps(found.to_dict(), indent=1) + "\n" if args.json else view.text(found, width)
        sys.stdout.write(shown)
        if found.findings and here.run_dir:
            sys.stdout.flush()
            raise _verdict(found)
        return 1 if found.findings else 0


def _verdict(found: Report) -> PrimusError:
    """What the run's record says of findings: the run did what it was asked for, and no log has another cause."""
    return PrimusError(
        f"data verify: {counted(len(found.findings), 'finding')} in {printable(found.prefix)}",
        fix="the run's log has each finding; prepare these data again, or name the tokenizer that prepared them",
    )


ACTION = _Verify()
