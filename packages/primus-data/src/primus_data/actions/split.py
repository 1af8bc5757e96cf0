"""Split a prefix into parts, such as training and validation, or cut documents out of it."""

from __future__ import annotations

import argparse
import re
import sys

from primus_core.plan.plan import Requirement
from primus_core.request.arguments import Parser
from primus_data.actions import arguments
from primus_data.contract import Here
from primus_machine.errors import Mistakes, RequestError
from primus_machine.files import plain_json
from primus_machine.text import printable

__all__ = ["ACTION"]

_NAMES = ("train", "validation", "test")
_SEED = 1234
_MOST_PARTS = 64
"""Each needs three open files."""


class _Split:
    name = "split"
    epilog = """examples:
  primus data split corpus_text_document --shares 98,1,1 --output-prefix corpus
  primus data split corpus_text_document --shares 9,1 --names train,validation --no-shuffle --output-prefix corpus
  primus data split corpus_text_document --documents 0:1000 --output-prefix first
  primus data split corpus_text_document --max-tokens 10B --output-prefix small"""
    is_shared = False

    def add_arguments(self, parser: Parser) -> None:
        arguments.add_prefix(parser)
        how = parser.add_mutually_exclusive_group()
        how.add_argument("--shares", type=_shares, metavar="A,B,...",
                         help="split all documents into parts with these shares of the tokens")  # fmt: skip
        how.add_argument("--documents", type=_range, metavar="A:B", help="cut out documents A to B-1, counted from 0")
        how.add_argument("--max-tokens", type=arguments.count, metavar="N",
                         help="cut out documents with at most N tokens, chosen as by --seed")  # fmt: skip
        arguments.add_output(parser, required=False)
        arguments.refuse_when_parsed(parser, _refuse_no_output)
        parser.add_argument("--names", type=_names, metavar="A,B,...",
                            help="the parts are PREFIX_A, PREFIX_B, ... (default: train,validation,test)")  # fmt: skip
        parser.add_argument("--by", choices=("tokens", "documents"), default="tokens",
                            help="what the shares are shares of (default: tokens)")  # fmt: skip
        order = parser.add_mutually_exclusive_group()
        order.add_argument("--seed", type=arguments.count, help=f"choose other documents (default: {_SEED})")
        order.add_argument(
            "--no-shuffle", action="store_true", help="the first documents go to the first part, and so on"
        )
        parser.add_argument("--json", action="store_true", help="print JSON")

    def check(self, args: argparse.Namespace, cwd: str) -> tuple[Requirement, ...]:
        mistakes = Mistakes()
        if not args.shares and args.documents is None and args.max_tokens is None:
            mistakes.add(RequestError("nothing says how to split", fix="add --shares, --documents or --max-tokens"))
        with mistakes:
            _outputs(args)
        for given, name in ((args.names, "--names"), (args.by != "tokens", "--by")):
            if given and not args.shares:
                mistakes.add(RequestError(f"{name} has no effect without --shares", fix=f"remove {name}"))
        if args.documents and (args.seed is not None or args.no_shuffle):
            what = "--seed and --no-shuffle have no effect with --documents"
            mistakes.add(RequestError(what, fix="remove them: the documents are cut out in their order"))
        if args.max_tokens == 0:
            mistakes.add(RequestError("--max-tokens 0 leaves no tokens", fix="increase it"))
        mistakes.refuse()
        return (*arguments.require_prefix(args.prefix, cwd), *arguments.require_output(args.output_prefix, cwd))

    def run(self, args: argparse.Namespace, here: Here) -> int:
        from primus_data.joining.splitting import Wanted, split  # numpy

        wanted = Wanted(
            outputs=_outputs(args),
            shares=args.shares or (),
            documents=args.documents,
            max_tokens=args.max_tokens or 0,
            seed=None if args.no_shuffle else _SEED if args.seed is None else args.seed,
            by_tokens=args.by == "tokens",
        )
        found = split(arguments.without_suffix(args.prefix), wanted)
        if args.json:
            sys.stdout.write(plain_json.dumps({"parts": [part._asdict() for part in found]}, indent=1) + "\n")
            return 0
        whole = sum(part.tokens for part in found)
        for part in found:
            share = f", {part.tokens / whole:.2%}" if len(found) > 1 and whole else ""
            amount = f"{arguments.amount(part.documents, part.tokens)}{share}"
            sys.stdout.write(f"{printable(part.prefix)}: {amount}\n")
        return 0


def _refuse_no_output(args: argparse.Namespace) -> None:
    """Refuse a split without an output. If the parts are missing, too, the error is of `split`, which needs --shares.

    Raises:
        RequestError: it has none.
    """
    if args.output_prefix:
        return
    says_how = args.shares or args.documents is not None or args.max_tokens is not None
    raise RequestError(
        "the following arguments are required: --output-prefix",
        fix="primus data split --help",
        kind="missing",
        where="" if says_how else "split",
        options=["--output-prefix"],
    )


def _outputs(args: argparse.Namespace) -> tuple[str, ...]:
    """The prefix of each part.

    Raises:
        RequestError: there are not as many names as shares.
    """
    if not args.shares:
        return (args.output_prefix,)
    names = args.names or _NAMES[: len(args.shares)]
    if len(names) != len(args.shares):
        what = f"there are {len(args.shares)} shares, and {len(names)} names"
        raise RequestError(what, fix="name each part: --names A,B,...")
    return tuple(f"{args.output_prefix}_{name}" for name in names)


def _shares(text: str) -> tuple[float, ...]:
    words = text.split(",")
    if not all(re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,12})?%?", word) for word in words):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of shares such as 98,1,1")
    found = tuple(float(word.rstrip("%")) for word in words)
    if len(found) < 2 or len(found) > _MOST_PARTS or not all(found):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of 2 to {_MOST_PARTS} shares greater than 0")
    return found


def _names(text: str) -> tuple[str, ...]:
    words = tuple(text.split(","))
    if not all(re.fullmatch(r"[\w.-]{1,100}", word) for word in words) or len(set(words)) < len(words):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of different names such as train,validation")
    return words


def _range(text: str) -> tuple[int, int | None]:
    found = re.fullmatch(r"([0-9]{0,18}):([0-9]{0,18})", text)
    if not found:
        raise argparse.ArgumentTypeError(f"'{text}' is not a range such as 0:1000, :1000 or 1000:")
    return int(found[1] or 0), int(found[2]) if found[2] else None


ACTION = _Split()
