"""Arguments that several actions share."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from primus_core.plan.plan import Requirement
from primus_core.request.arguments import Parser
from primus_data.indexed import described
from primus_data.indexed.nearby import correct_prefix, is_there, prefixes_in
from primus_data.tokenizers import KINDS
from primus_data.tokenizers.recognition import nearest_tokenizer, tokenizers_in
from primus_machine.errors import RequestError

if TYPE_CHECKING:
    from primus_data.tokenizers import Tokenizer

__all__ = [
    "HOW_TO_GET",
    "ActionParser",
    "add_output",
    "add_prefix",
    "add_tokenizer",
    "amount",
    "count",
    "draws_blocks",
    "refuse_when_parsed",
    "require_model",
    "require_output",
    "require_prefix",
    "require_tokenizer",
    "share",
    "tokenizer",
    "without_suffix",
]

_UNITS = {"": 1, "k": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12}
_REPOSITORY = r"(?![A-Z]+$)[\w-]+|[\w-]+/[\w.-]+(?<!\.json)(?<!\.model)"
"""What names a repository of Hugging Face, and no file; nor is it the FILE of an example."""
HOW_TO_GET = (
    "or fetch the tokenizer of the model first; Primus downloads none:\n"
    "hf download ORGANIZATION/MODEL --include '*token*' --local-dir FOLDER, and then --tokenizer-model FOLDER\n"
    "or train one on your text: docs/data-tokenizers.md"
)
"""What to do where there is no tokenizer."""


class ActionParser(Parser):
    """The parser of an action. It may refuse what its arguments lack together, as argparse does one by one."""

    refuse: Callable[[argparse.Namespace], None] | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does it."""
        found, rest = super().parse_known_args(args, namespace)
        if self.refuse and not self.mistakes:  # a value that was refused may be the one that is missing
            self.refuse(found)
        return found, rest


def refuse_when_parsed(parser: Parser, refuse: Callable[[argparse.Namespace], None]) -> None:
    """Let a parser refuse arguments: earlier than `check`, so that no command without them is proposed."""
    if isinstance(parser, ActionParser):
        parser.refuse = refuse


def count(text: str) -> int:
    """For `type=`: how many, of `300B`, `1.5T`, `1e9` or a number.

    Raises:
        argparse.ArgumentTypeError: it is none of them.
    """
    found = re.fullmatch(r"([0-9]{1,18})(\.[0-9]{1,9})?(?:([kMBGT])|e([0-9]{1,2}))?", text)
    unit = _UNITS[found[3] or ""] * 10 ** int(found[4] or 0) if found else 0
    fraction = int(float(f"0{found[2]}") * unit + 0.5) if found and found[2] else 0
    whole = int(found[1]) * unit + fraction if found else -1
    if not found or (found[2] and unit == 1) or whole >= 1 << 62:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number such as 1000, 50k, 300B or 1e9")
    return whole


def share(text: str) -> float:
    """For `type=`: a share, of `1%` or `0.01`.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    found = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,9})?)(%?)", text)
    value = float(found[1]) / (100 if found[2] else 1) if found else -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a share such as 1% or 0.01")
    return value


def amount(documents: int, tokens: int) -> str:
    """`1 document, 5,000 tokens`."""
    return f"{documents:,} document{'s' * (documents != 1)}, {tokens:,} tokens"


def without_suffix(path: str) -> str:
    """The prefix for a path that may end in .bin or .idx: shells complete to these."""
    return path[:-4] if path.endswith((".bin", ".idx")) else path


def add_prefix(parser: Parser) -> None:
    """The data to look at."""
    parser.add_argument("prefix", metavar="PREFIX", help="path of the data without .bin and .idx")


def require_prefix(path: str, cwd: str) -> tuple[Requirement, ...]:
    """Both files must be there.

    Raises:
        RequestError: the path is that of a text, a folder, or the record of prepared data.
    """
    _refuse_other(path, cwd)
    prefix = os.path.join(cwd, without_suffix(path))
    fix = correct_prefix(without_suffix(path), cwd)
    if weight := re.fullmatch(r"(.+):([0-9.]+%?)", path):
        fix = f"a weight stands behind '=': {weight[1]}={weight[2]}"
    return tuple(Requirement("file", prefix + suffix, fix) for suffix in (".idx", ".bin"))


def _refuse_other(path: str, cwd: str) -> None:
    whole = os.path.join(cwd, path)
    if path != without_suffix(path) or os.path.exists(f"{whole}.idx") or not os.path.exists(whole):
        return
    prefix = path.removesuffix(".json")
    if prefix != path and is_there(prefix, cwd) and "outcome" in described.read(os.path.join(cwd, prefix)):
        why = "PREFIX.json says how PREFIX.bin and PREFIX.idx were made"
        raise RequestError(f"'{path}' is the record of prepared data, not the data", why=why, fix=_named(prefix))
    inside = prefixes_in(whole)
    stem = os.path.basename(os.path.normpath(path)).partition(".")[0] or "tokens"
    typed = f"primus data prepare --input {shlex.quote(path)} --output-prefix {shlex.quote(stem)}"
    model = "".join(tokenizers_in(cwd)[:1])
    prepare = f"{typed} --tokenizer-model {shlex.quote(model or 'FILE')} --append-eod"
    prepare += f"\nand then name {stem}_text_document"
    if path.endswith((".yaml", ".yml", ".toml", ".py")) or path in tokenizers_in(cwd):  # no text to prepare
        prepare = "name a prefix: the path without .bin and .idx"
    if is_there(f"{stem}_text_document", cwd):
        prepare = _named(f"{stem}_text_document")
    raise RequestError(
        f"'{path}' is not prepared data",
        why="prepared data is PREFIX.bin and PREFIX.idx, which `data prepare` writes from text",
        fix=f"name a prefix in it: {os.path.join(path, inside[0])}" if inside else prepare,
    )


def _named(prefix: str) -> str:
    return f"name the prepared data {prefix}, for instance:\nprimus data inspect {shlex.quote(prefix)}"


def add_tokenizer(parser: Parser) -> None:
    """The tokenizer that the data was made with."""
    parser.add_argument("--tokenizer-type", default="", metavar="TYPE", choices=KINDS,
                        help=f"one of {', '.join(KINDS)} (default: {KINDS[0]})")  # fmt: skip
    parser.add_argument("--tokenizer-model", default="", metavar="PATH", help="the tokenizer that made the data")


def require_tokenizer(args: argparse.Namespace, cwd: str) -> tuple[Requirement, ...]:
    """Its file must be there.

    Raises:
        RequestError: there is a type without a model.
    """
    if args.tokenizer_type and not args.tokenizer_model:
        raise RequestError("--tokenizer-type alone names no tokenizer", fix="add --tokenizer-model PATH")
    return require_model(args, cwd)


def require_model(args: argparse.Namespace, cwd: str) -> tuple[Requirement, ...]:
    """The tokenizer's file or folder must be there, if one is named."""
    path = args.tokenizer_model
    if not path:
        return ()
    whole = os.path.join(cwd, path)
    fix = "correct --tokenizer-model" if os.path.exists(whole) else _other_model(path, cwd, args.tokenizer_type)
    return (Requirement("file", whole, fix),)


def _other_model(path: str, cwd: str, kind: str) -> str:
    """Return what to do about a tokenizer that does not exist."""
    found, is_near = nearest_tokenizer(path, cwd, kind or KINDS[0])
    if is_near:
        return f"did you mean --tokenizer-model {shlex.quote(found)}?"
    here = f", such as --tokenizer-model {shlex.quote(found)}" if found else ""
    if re.fullmatch(_REPOSITORY, path) and not kind.startswith("Tik"):  # `cl100k_base` is of no hub
        return f"hf download {path} --include '*token*' --local-dir {path}\nor correct --tokenizer-model{here}"
    return f"name one that exists{here}" if found else f"correct --tokenizer-model, {HOW_TO_GET}"


def tokenizer(args: argparse.Namespace) -> Tokenizer | None:
    """The one that the arguments name.

    Raises:
        RequestError: there is no such tokenizer.
        MachineError: it cannot be read, or a library is missing.
    """
    if not args.tokenizer_model:
        return None
    from primus_data import tokenizers

    return tokenizers.load(args.tokenizer_type or KINDS[0], args.tokenizer_model)


def add_output(parser: Parser, *, required: bool = True) -> None:
    """Where the result goes."""
    parser.add_argument("--output-prefix", required=required, metavar="PREFIX", type=_prefix,
                        help="path of the output, without .bin and .idx" + " (required)" * (not required))  # fmt: skip


def _prefix(text: str) -> str:
    if not os.path.basename(text) or text.endswith((".bin", ".idx")):
        raise argparse.ArgumentTypeError(f"'{text}' is not a prefix: name a path without .bin and .idx")
    return text


def require_output(prefix: str, cwd: str) -> tuple[Requirement, ...]:
    """Its folder."""
    folder = os.path.dirname(os.path.join(cwd, prefix))
    return (Requirement("folder", folder, "choose another --output-prefix"),)


def draws_blocks() -> bool:
    """Whether what reads the output knows more than ASCII."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
