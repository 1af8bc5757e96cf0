"""Show the facts, parameters and FLOPs of known models: list, show, check."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from primus_core.config import system
from primus_core.request.arguments import Parser, parse_segment
from primus_machine.files import plain_json
from primus_machine.host import HostRoot

if TYPE_CHECKING:
    from primus_train.models.architecture import Model

__all__ = ["parser", "run"]

_EPILOG = """examples:
  primus models list
  primus models list llama3 dense
  primus models show deepseek_v3
  primus models check"""
_LIST_EPILOG = """examples:
  primus models list
  primus models list moe qwen
  primus models list --json"""
_SHOW_EPILOG = """examples:
  primus models show llama3.1_8B
  primus models show deepseek_v3 --seq-length 8192 --json"""
_CHECK_EPILOG = """examples:
  primus models check
  primus models check llama3.1_8B"""
_MODEL = "a name of `primus models list`, or the path of a file with one model"
_SEQ_LENGTH = 4096


def parser() -> Parser:
    """The command's parser, with the models' names for completion."""
    whole = _parser()
    names = tuple(_known(""))
    for action in ("show", "check"):
        whole.subcommands()[action].first_words = names
    return whole


def _parser() -> Parser:
    parser = Parser(
        prog="primus models", epilog=_EPILOG, description="Show the facts, parameters and FLOPs of known models."
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="List the models that match all words.", epilog=_LIST_EPILOG)
    listing.add_argument(
        "words", nargs="*", metavar="WORD", help="a part of the name, family, kind or source (case-insensitive)"
    )
    show = actions.add_parser("show", help="Show the facts, parameters and FLOPs of a model.", epilog=_SHOW_EPILOG)
    show.add_argument("model", metavar="MODEL", help=_MODEL)
    show.add_argument("--seq-length", type=_length, default=_SEQ_LENGTH, metavar="TOKENS",
                      help=f"sequence length for the FLOPs per token (default: {_SEQ_LENGTH})")  # fmt: skip
    check = actions.add_parser(
        "check", help="Compare the parameter counts with the known numbers.", epilog=_CHECK_EPILOG
    )
    check.add_argument("models", nargs="*", metavar="MODEL", help=f"{_MODEL} (default: all)")
    for action in (listing, show, check):
        action.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _length(text: str) -> int:
    if not (text.isdecimal() and text.isascii() and len(text) < 10 and int(text)):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of tokens")
    return int(text)


def run(words: Sequence[str], layer: str) -> int:
    """Do what the words ask for."""
    args = parse_segment(_parser(), words)
    args.layer = layer
    return {"list": _list, "show": _show, "check": _check}[args.action](args)


def _known(layer: str) -> Mapping[str, Model]:
    from primus_train.models import catalogue  # pydantic: 100 ms that --help does not pay

    return catalogue.load(system.load(HostRoot(), layer).model_files)


def _list(args: argparse.Namespace) -> int:
    rows = [_row(model) for model in _known(args.layer).values() if _has(model, args.words)]
    rows.sort(key=lambda row: (row["family"], row["parameters"]))
    if args.json:
        _write_json(rows)
        return 0
    if not rows:
        sys.stdout.write(f"no model has {' and '.join(map(repr, args.words))}\n")
        return 0
    from tabulate import tabulate

    shown = [[r["name"], r["family"], r["kind"], _short(r["parameters"]), _short(r["active"]), r["layers"],
              r["hidden_size"], r["context"], r["source"]] for r in rows]  # fmt: skip
    headers = ("name", "family", "kind", "params", "active", "layers", "hidden", "context", "source")
    aligned = ("left",) * 3 + ("right",) * 5 + ("left",)
    table = tabulate(shown, headers=headers, tablefmt="simple", disable_numparse=True, colalign=aligned)
    sys.stdout.write(f"{table}\n")
    return 0


def _has(model: Model, words: Iterable[str]) -> bool:
    facts = model.facts
    text = " ".join((model.name, *facts.aliases, model.family, model.kind, facts.hf, model.origin)).lower()
    return all(word.lower() in text for word in words)


def _row(model: Model) -> dict[str, Any]:
    from primus_train.models import arithmetic

    facts, counts = model.facts, arithmetic.parameters(model.facts)
    return {
        "name": model.name,
        "aliases": facts.aliases,
        "family": model.family,
        "kind": model.kind,
        "parameters": counts.total,
        "active": counts.active,
        "layers": facts.num_layers,
        "hidden_size": facts.hidden_size,
        "context": facts.max_position_embeddings,
        "source": facts.hf or facts.source[0],
        "origin": model.origin,
    }


def _short(number: int) -> str:
    """`8.03B`: three digits are what a person compares."""
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6)):
        if (scaled := number / size) >= 0.9995:
            return f"{scaled:.{2 if scaled < 10 else 1 if scaled < 100 else 0}f}{unit}"
    return str(number)


def _show(args: argparse.Namespace) -> int:
    from primus_train.models import catalogue, view

    model = catalogue.find(args.model, _known(args.layer))
    if args.json:
        _write_json(view.as_data(model, args.seq_length))
    else:
        sys.stdout.write(view.as_text(model, args.seq_length))
    return 0


def _check(args: argparse.Namespace) -> int:
    from primus_train.models import catalogue, checks

    known = _known(args.layer)
    models = [catalogue.find(name, known) for name in args.models] or list(known.values())
    results = [checks.compare(model) for model in models]
    wrong = [result for result in results if result.differences]
    if args.json:
        _write_json([result.to_dict() for result in results])
    else:
        sys.stdout.write("".join(f"{result.name}: {text}\n" for result in wrong for text in result.texts()))
        sys.stdout.write(_verdict(len(results), len(wrong), [r.name for r in results if not r.known]))
    return 1 if wrong else 0


def _verdict(all_: int, wrong: int, unknown: list[str]) -> str:
    compared = all_ - len(unknown)
    lines = [f"{compared - wrong} of {compared} models have the known number of parameters, to the unit"]
    lines += [f"not compared, because they have no known number: {', '.join(unknown)}"] if unknown else []
    return "".join(f"{line}\n" for line in lines)


def _write_json(data: Any) -> None:
    sys.stdout.write(plain_json.dumps(data, indent=1, ensure_ascii=False) + "\n")
