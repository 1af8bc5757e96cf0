"""Weight several prefixes for one training, and show how often each is repeated."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from primus_core.plan.plan import Requirement
from primus_core.request.arguments import Parser
from primus_data.actions import arguments
from primus_data.contract import Here
from primus_machine.errors import Mistakes, RequestError
from primus_machine.files import plain_json
from primus_machine.host import HostRoot
from primus_machine.text import printable

if TYPE_CHECKING:
    from primus_data.joining.blending import Blend

__all__ = ["ACTION"]

_LONGEST_PREFIX = 34
_SUFFIXES = (".yaml", ".yml", ".txt", ".json")
_REPEATED = 4.0
"""Up to four epochs are nearly as good as new tokens: Muennighoff et al. 2023, arXiv:2305.16264."""


class _Blend:
    name = "blend"
    epilog = """examples:
  primus data blend --input web_text_document=0.7 books_text_document=0.3 --tokens 300B --output blend.yaml
  primus data blend --input web_text_document books_text_document --temperature 2
  primus data blend --file blend.yaml --samples 1M --seq-len 4096"""
    is_shared = False

    def add_arguments(self, parser: Parser) -> None:
        parser.add_argument("--input", nargs="+", type=_weighted, default=[], metavar="PREFIX[=WEIGHT]",
                            help="what to blend; without weights, in proportion to the tokens")  # fmt: skip
        parser.add_argument("--file", metavar="PATH", help="read a blend from a file that --output wrote")
        parser.add_argument("--temperature", type=_positive, metavar="T",
                            help="without weights: in proportion to tokens^(1/T); small inputs get more")  # fmt: skip
        parser.add_argument("--tokens", type=arguments.count, metavar="N", help="tokens to train on, such as 300B")
        parser.add_argument("--samples", type=arguments.count, metavar="N", help="the same in samples of --seq-len")
        parser.add_argument("--seq-len", type=arguments.count, metavar="N", help="tokens of a sample")
        parser.add_argument("--max-epochs", type=_positive, default=_REPEATED, metavar="N",
                            help="warn if an input is repeated more often (default: 4)")  # fmt: skip
        parser.add_argument("--output", action="append", default=[], metavar="PATH",
                            help="write .yaml for an experiment, .txt for Megatron's --data-args-path, or .json; "
                            "repeatable")  # fmt: skip
        parser.add_argument("--json", action="store_true", help="print JSON")

    def check(self, args: argparse.Namespace, cwd: str) -> tuple[Requirement, ...]:
        mistakes = Mistakes()
        if bool(args.input) == bool(args.file):
            mistakes.add(RequestError("one of --input and --file is needed", fix="name what to blend"))
        with mistakes:
            _expect_alike(args.input)
        if args.temperature and any(weight for _, weight in args.input):
            what = "--temperature and weights contradict each other"
            mistakes.add(RequestError(what, fix="remove one of them"))
        if (args.samples is None) != (args.seq_len is None):
            mistakes.add(RequestError("--samples and --seq-len belong together", fix="give both, or --tokens"))
        if args.tokens is not None and args.samples is not None:
            mistakes.add(RequestError("--tokens and --samples contradict each other", fix="remove one of them"))
        for path in args.output:
            if not path.endswith(_SUFFIXES):
                what = f"--output '{path}' has no known suffix"
                mistakes.add(RequestError(what, fix=f"end it in {', '.join(_SUFFIXES)}"))
        mistakes.refuse()
        named = [(Requirement("file", os.path.join(cwd, args.file), "correct --file"),)] if args.file else []
        inputs = [arguments.require_prefix(prefix, cwd) for prefix, _ in args.input]
        folders = [os.path.dirname(os.path.join(cwd, path)) for path in args.output]
        found = [one for part in (*named, *inputs) for one in part]
        return (*found, *(Requirement("folder", folder, "choose another --output") for folder in folders))

    def run(self, args: argparse.Namespace, here: Here) -> int:
        from primus_data.joining import blend_files  # yaml
        from primus_data.joining.blending import blend

        given = blend_files.read(args.file, HostRoot().environ) if args.file else args.input
        _expect_alike(given)
        tokens = args.tokens or (args.samples or 0) * (args.seq_len or 0)
        found = blend(given, temperature=args.temperature or 1.0, tokens=tokens)
        for path in args.output:
            blend_files.write(found, path)
        sys.stdout.write(plain_json.dumps(found.to_dict(), indent=1) + "\n" if args.json else _text(found))
        for one in found.repeated(args.max_epochs):
            name = printable(os.path.relpath(one.prefix))
            sys.stderr.write(f"primus: warning: {name} is repeated {one.epochs:.1f} times\n")
        return 0


def _text(found: Blend) -> str:
    from tabulate import tabulate

    headers = ["input", "tokens", "weight", *(["trained on", "epochs"] if found.tokens else ["seen once after"])]
    rows = []
    for one in found.sources:
        figures = [f"{one.drawn:,}", f"{one.epochs:.2f}"] if found.tokens else [f"{round(one.tokens / one.weight):,}"]
        rows.append([_name(one.prefix), f"{one.tokens:,}", f"{one.weight:.4f}", *figures])
    aligned = ("left", *["right"] * (len(headers) - 1))
    return str(tabulate(rows, headers=headers, disable_numparse=True, colalign=aligned)) + "\n"


def _name(prefix: str) -> str:
    shown = printable(os.path.relpath(prefix))
    return shown if len(shown) <= _LONGEST_PREFIX else f"...{shown[3 - _LONGEST_PREFIX :]}"


def _weighted(text: str) -> tuple[str, float | None]:
    prefix, sign, weight = text.rpartition("=")
    try:
        value = float(weight)
    except ValueError:
        return arguments.without_suffix(text), None  # '=' is part of the path
    if not sign and not os.path.exists(f"{text}.idx"):
        raise argparse.ArgumentTypeError(f"'{text}' is a number: write a weight as PREFIX=WEIGHT")
    if not sign:
        return arguments.without_suffix(text), None
    if not 0 < value < 1e18 or not prefix:
        raise argparse.ArgumentTypeError(f"'{text}' has no weight greater than 0")
    return arguments.without_suffix(prefix), value


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number greater than 0")
    return value


def _expect_alike(given: list[tuple[str, float | None]]) -> None:
    """Either all have a weight, or none; and none comes twice.

    Raises:
        RequestError: it is otherwise.
    """
    mistakes = Mistakes()
    without = [prefix for prefix, weight in given if weight is None]
    if without and len(without) < len(given):
        what = f"'{without[0]}' has no weight, and others have one"
        mistakes.add(RequestError(what, fix="give a weight to all: PREFIX=WEIGHT, or to none"))
    prefixes = [os.path.normpath(prefix) for prefix, _ in given]
    for prefix in sorted({prefix for prefix in prefixes if prefixes.count(prefix) > 1}):
        mistakes.add(RequestError(f"'{prefix}' is in the blend twice", fix="increase its weight instead"))
    mistakes.refuse()


ACTION = _Blend()
