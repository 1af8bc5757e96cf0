"""Raw text that a `data` section names, tokenized before the training: `data prepare` into Primus's cache.

The result has a name made from the files (paths, sizes, times), the tokenizer and the settings: a second run finds it.
Nodes that share the cache share the work, and wait for each other as `data prepare` does.

python -m primus_data.training.prepare_input --input corpus.jsonl --tokenizer-model tokenizer.json --cache DIR --out DIR
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
import sys

from primus_core import get_logger
from primus_core.errors import MachineError, PrimusError, RequestError
from primus_data.contract import Here
from primus_data.preparing import outputs
from primus_data.preparing.given import Given
from primus_data.preparing.preparation import Preparation
from primus_data.preparing.settings import Settings
from primus_data.preparing.start import begun
from primus_data.training.corpora import CORPUS
from primus_data.training.files import INTERRUPTED
from primus_machine.errors import as_line
from primus_machine.files import trust
from primus_machine.files.atomic import link_atomically
from primus_machine.host import HostRoot
from primus_machine.units import counted

__all__ = ["main"]

_NAME = 32
"""Characters of a fingerprint that name the folder."""


def main(words: list[str] | None = None) -> int:
    """Prepare, and let `--out` be a link to the result. The exit code."""
    args = _parser().parse_args(words)
    try:
        _prepare(args)
    except OSError as error:
        _fail(MachineError(f"'{error.filename or args.cache}': {error.strerror or error}",
                           fix="free space, or set another cache (data.cache, PRIMUS_CACHE)"))  # fmt: skip
        return MachineError.exit_code
    except PrimusError as error:
        error.fix = _fix(error, args)
        _fail(error)
        return error.exit_code
    except KeyboardInterrupt:  # whoever started this says so
        return INTERRUPTED
    return 0


def _fail(error: PrimusError) -> None:
    sys.stderr.write(as_line(error))


def _fix(error: PrimusError, args: argparse.Namespace) -> str:
    """What to do about an error, in the settings of a training: it skips nothing."""
    if error.kind == "key":
        return f"name the key of the text: data.json_key={error.meant}\nor correct it"
    if error.kind != "document":
        return error.fix
    words = ["--input", *args.input, "--output-prefix", "tokens", "--tokenizer-type", args.tokenizer_type]
    words += ["--tokenizer-model", args.tokenizer_model] if args.tokenizer_model else []
    words += ["--json-keys", args.json_key, *(["--append-eod"] if args.append_eod else []), "--on-error", "skip"]
    prefix = f"tokens_{args.json_key}_document"
    instead = f"or prepare without such documents, and set train_data_path: {prefix} for `input`:"
    return f"correct it, {instead}\nprimus data prepare {shlex.join(words)}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="prepare_input", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--input", nargs="+", required=True)
    parser.add_argument("--tokenizer-type", default="HuggingFaceTokenizer")
    parser.add_argument("--tokenizer-model", default="")
    parser.add_argument("--json-key", default="text")
    parser.add_argument("--append-eod", action="store_true")
    parser.add_argument("--model-vocab-size", type=int, default=0, help="of the model; 0: not known")
    parser.add_argument("--cache", required=True, help="folder that keeps what was prepared")
    parser.add_argument("--out", required=True, help="link to make")
    parser.add_argument("--node-rank", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=1)
    return parser


def _prepare(args: argparse.Namespace) -> None:
    given = begun(_settings(args))
    _check_vocabulary(given, args.model_vocab_size)
    folder = os.path.join(args.cache, f"input-{given.fingerprint[:_NAME]}")
    given = given._replace(settings=dataclasses.replace(given.settings, prefix=os.path.join(folder, CORPUS)))
    host, before = HostRoot(), outputs.are_done(given.settings.outputs, given.fingerprint)
    if not before:
        Preparation(given, Here(args.node_rank, args.nodes), host).run()
    trust.of(host.environ).require_loadable(folder)  # somebody else may have made it before
    message = f"data: {counted(len(given.files), 'file')}, prepared {'before ' if before else ''}in {folder}"
    get_logger().info("data_prepared", message=message, files=len(given.files), path=folder, before=before)
    os.makedirs(os.path.dirname(args.out), exist_ok=True)
    link_atomically(folder, args.out)


def _settings(args: argparse.Namespace) -> Settings:
    return Settings(
        inputs=tuple(args.input),
        prefix=os.path.join(args.cache, CORPUS),
        tokenizer_type=args.tokenizer_type,
        tokenizer_model=args.tokenizer_model,
        append_eod=args.append_eod,
        keys=(args.json_key,),
    )


def _check_vocabulary(given: Given, known: int) -> None:
    """A framework trains on with tokens that the model does not have, or fails in a kernel."""
    size = given.encoder.tokenizer.vocab_size
    if known and size > known:
        raise RequestError(
            f"the tokenizer has {size} tokens, but the model's vocabulary has {known}",
            fix=f"use the model's tokenizer (data.tokenizer_model), or set the model's vocab_size to at least {size}",
        )


if __name__ == "__main__":
    sys.exit(main())
