"""Tokenize text into Megatron's .bin and .idx files."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from typing import TYPE_CHECKING

from primus_core.errors import Mistakes, RequestError
from primus_core.plan.plan import Requirement
from primus_core.request import former
from primus_core.request.arguments import Parser, duration, whole_number
from primus_data import memory, thread_pools, tokenizers
from primus_data.actions import arguments
from primus_data.contract import Here
from primus_data.sources.files import place
from primus_data.tokenizers.recognition import tokenizers_in

if TYPE_CHECKING:
    from primus_data.preparing.finish import Result
    from primus_data.preparing.settings import Settings

__all__ = ["ACTION", "prepare"]

_WAIT_S = 3600.0
_GPT2 = "GPT2BPETokenizer"


class _Prepare:
    name = "prepare"
    epilog = """examples:
  primus data prepare --input corpus.jsonl --output-prefix corpus --tokenizer-model tokenizer.json --append-eod
  primus data prepare --input 'shards/*.jsonl.zst' more.parquet --output-prefix corpus \\
      --tokenizer-type TikTokenizer --tokenizer-model vocabulary.json
  primus slurm srun -N 4 -- data prepare --input shards --output-prefix /shared/corpus --tokenizer-model ..."""
    is_shared = takes_over = True

    def add_arguments(self, parser: Parser) -> None:
        add = parser.add_argument
        add("--input", nargs="+", required=True, metavar="PATH",
            help="files, patterns or folders: JSON lines (also .gz, .zst), .parquet, text files")  # fmt: skip
        add("--output-prefix", required=True, metavar="PREFIX",
            help="path of the output: PREFIX_<key>_document.bin and .idx")  # fmt: skip
        add("--tokenizer-type", default=tokenizers.KINDS[0], choices=tokenizers.KINDS, metavar="TYPE",
            help=f"as Megatron calls it: {', '.join(tokenizers.KINDS)} (default: {tokenizers.KINDS[0]})")  # fmt: skip
        add("--tokenizer-model", default="", metavar="PATH", help="file or folder of the tokenizer")
        add("--vocab-file", default="", metavar="FILE", help=f"vocabulary of a {_GPT2}")
        add("--merge-file", default="", metavar="FILE", help=f"merges of a {_GPT2}")
        add("--vocab-size", type=_count, default=0, metavar="N",
            help="stop if the tokenizer's vocabulary has another size")  # fmt: skip
        add("--append-eod", action="store_true", help="append the end-of-document token to each document")
        add("--json-keys", nargs="+", default=["text"], metavar="KEY",
            help="keys of the texts; each gets its own output (default: text)")  # fmt: skip
        add("--split-sentences", action="store_true", help="make each sentence a sequence; needs nltk")
        add("--keep-newlines", action="store_true", help="keep newlines between sentences when splitting")
        add("--lang", default="", help="language of the sentences to split (default: english)")
        add("--workers", type=whole_number, default=0, metavar="N", help="threads to use (default: all cores)")
        add("--partitions", type=whole_number, default=0, metavar="N",
            help="divide the input into about N parts; the output is the same (default: by size)")  # fmt: skip
        add("--on-error", choices=("stop", "skip"), default="stop",
            help="stop at what is not a document, or skip and count it (default: stop)")  # fmt: skip
        add("--overwrite", action="store_true", help="replace an output that exists")
        add("--discard-unfinished", action="store_true", help="discard an unfinished preparation, and start over")
        add("--wait", type=duration, default=_WAIT_S, metavar="TIME",
            help="stop after waiting so long for other nodes without progress (default: 1h)")  # fmt: skip

    def check(self, args: argparse.Namespace, cwd: str) -> tuple[Requirement, ...]:
        mistakes = Mistakes()
        for look in (_check_prefix, _check_keys):
            with mistakes:
                look(args)
        with mistakes:
            _check_tokenizer(args, cwd)
        mistakes.refuse()
        folder = os.path.dirname(os.path.join(cwd, args.output_prefix))
        named = {"--vocab-file": args.vocab_file, "--merge-file": args.merge_file}
        files = {option: os.path.join(cwd, path) for option, path in named.items() if path}
        return (
            Requirement("folder", folder, "choose another --output-prefix"),
            *(Requirement("file", os.path.join(cwd, place(word)), "check the path: --input") for word in args.input),
            *arguments.require_model(args, cwd),
            *(Requirement("file", path, f"check the path: {option}") for option, path in files.items()),
        )

    def run(self, args: argparse.Namespace, here: Here) -> int:
        result = prepare(_settings(args), here)
        if result:
            sys.stdout.write(_report(result, _settings(args)))
        elif not here.node_rank:
            done = ", ".join(_settings(args).outputs)
            sys.stdout.write(f"{done}: already prepared from this input with these settings\n")
        return 0


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of tokens")
    return int(text)


def _check_prefix(args: argparse.Namespace) -> None:
    if not os.path.basename(args.output_prefix):
        fix = f"add a name: {os.path.join(args.output_prefix, 'corpus')}"
        raise RequestError(f"--output-prefix '{args.output_prefix}' ends with a folder", fix=fix)


def _check_keys(args: argparse.Namespace) -> None:
    for key in args.json_keys:
        if not key or "/" in key or "\0" in key:
            why = "the key becomes a part of a file's name"
            raise RequestError(f"--json-keys: '{key}' is not supported", why=why, fix="rename it in the input")
        if args.json_keys.count(key) > 1:
            raise RequestError(f"--json-keys: '{key}' is named twice", fix="name each key once")
    for flag in ("--keep-newlines", "--lang"):
        if getattr(args, flag[2:].replace("-", "_")) and not args.split_sentences:
            raise RequestError(f"{flag} has no effect", why="texts are not split", fix="add --split-sentences")


def _check_tokenizer(args: argparse.Namespace, cwd: str) -> None:
    has_files = args.vocab_file or args.merge_file
    if has_files and args.tokenizer_type != _GPT2:
        fix = f"--tokenizer-type {_GPT2}, or --tokenizer-model"
        raise RequestError(f"--vocab-file and --merge-file are of a {_GPT2}", fix=fix)
    named = args.vocab_file and args.merge_file if has_files else args.tokenizer_model
    if args.tokenizer_type == _GPT2 and not named:
        fix = "name both: --vocab-file vocab.json --merge-file merges.txt"
        raise RequestError(f"a {_GPT2} needs both --vocab-file and --merge-file", fix=fix)
    if args.tokenizer_model or has_files or args.tokenizer_type.startswith("Null"):
        return
    raise _without_model(cwd, args.tokenizer_type)


def _without_model(cwd: str, kind: str) -> RequestError:
    """The error for a missing option, with a tokenizer that exists; else how to get one."""
    what, option = "--tokenizer-model is missing", "--tokenizer-model"
    here = tokenizers_in(cwd, kind)
    if former.example("prepare", option) in here:  # then the whole command can be proposed
        fix = f"name the tokenizer's file: {option} {former.example('prepare', option)}"
        return RequestError(what, fix=fix, kind="missing", where="prepare", options=[option])
    fix = f"add {option} {shlex.quote(here[0])}" if here else f"add {option} FILE, {arguments.HOW_TO_GET}"
    return RequestError(what, fix=fix)


def _settings(args: argparse.Namespace) -> Settings:
    from primus_data.preparing.settings import Settings

    return Settings(
        inputs=tuple(args.input),
        prefix=args.output_prefix,
        tokenizer_type=args.tokenizer_type,
        tokenizer_model=args.tokenizer_model or args.vocab_file,
        merges=args.merge_file,
        vocab_size=args.vocab_size,
        append_eod=args.append_eod,
        keys=tuple(args.json_keys),
        splits_sentences=args.split_sentences,
        keeps_newlines=args.keep_newlines,
        language=args.lang or "english",
        on_error=args.on_error,
        workers=args.workers,
        partitions=args.partitions,
        overwrites=args.overwrite,
        discards_unfinished=args.discard_unfinished,
        wait_s=args.wait,
    )


def prepare(settings: Settings, here: Here) -> Result | None:
    """Prepare what the settings say; None: it was prepared before, or another node has joined it.

    Raises:
        PrimusError: it cannot be done.
    """
    memory.keep_little()
    with thread_pools.limited("OPENBLAS_NUM_THREADS", 1):  # numpy's linear algebra starts one a core, and each spins
        from primus_data.preparing import preparation  # numpy
    from primus_data.preparing.start import begun
    from primus_machine.host import HostRoot

    return preparation.Preparation(begun(settings), here, HostRoot()).run()


def _report(result: Result, settings: Settings) -> str:
    from primus_machine.text import printable

    lines = [f"{arguments.amount(result.documents, result.tokens)} in {result.seconds:.1f} s"]
    if result.skipped:
        lines.append(f"{result.skipped:,} skipped, listed in {printable(result.skipped_file)}")
        lines += [f"  {printable(one)}" for one in result.first_skipped]
    return "\n".join([*lines, *(printable(prefix) for prefix in settings.outputs)]) + "\n"


ACTION = _Prepare()
