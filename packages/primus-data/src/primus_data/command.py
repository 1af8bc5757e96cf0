"""Work with training data on this machine: fetch, clean, tokenize, inspect, verify, merge, split and blend it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from primus_core import requirements
from primus_core.request.arguments import Parser, parse_segment
from primus_data import actions
from primus_data.contract import Here
from primus_machine.host import HostRoot

__all__ = ["parser", "run"]

_EPILOG = """examples:
  primus data prepare --input corpus.jsonl --output-prefix corpus --tokenizer-model tokenizer.json
  primus data inspect corpus_text_document

The task `data` does the same as a run with logs and a record, or on several nodes:
  primus slurm srun -N 4 -- data prepare --input 'shards/*.jsonl' --output-prefix corpus --tokenizer-model ..."""


def parser() -> Parser:
    """The command's parser."""
    found = Parser(prog="primus data", epilog=_EPILOG, description=(__doc__ or "").partition("\n")[0])
    actions.add_actions(found)
    return found


def run(words: Sequence[str], layer: str) -> int:
    """Run one action in this process."""
    args = parse_segment(parser(), words)
    action = actions.find(args.action)
    requirements.check(action.check(args, os.getcwd()), HostRoot().environ)
    return action.run(args, Here())
