"""Print the completion script for bash, zsh or fish."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from primus_core.request.arguments import Parser, parse_segment

__all__ = ["parser", "run"]

_SCRIPTS = os.path.join(os.path.dirname(__file__), "..", "data", "completion")

_EPILOG = """examples:
  source <(primus completion bash)
  primus completion zsh > _primus         # in a folder of $fpath
  primus completion fish > primus.fish    # in ~/.config/fish/completions/"""


def parser() -> Parser:
    """The command's parser."""
    parser = Parser(prog="primus completion", epilog=_EPILOG, description="Print the completion script for a shell.")
    parser.add_argument("shell", choices=("bash", "fish", "zsh"), help="the shell")
    return parser


def run(words: Sequence[str], layer: str) -> int:
    """Print it."""
    with open(f"{_SCRIPTS}/primus.{parse_segment(parser(), words).shell}", encoding="utf-8") as file:
        sys.stdout.write(file.read())
    return 0
