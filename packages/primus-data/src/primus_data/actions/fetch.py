"""Fetch text of the Hugging Face Hub, of files and of URLs into JSONL shards."""

from __future__ import annotations

import argparse
import os

from primus_core.plan.plan import Requirement
from primus_core.request.arguments import Parser, duration, size
from primus_data.actions import arguments
from primus_data.contract import Here
from primus_data.fetching import request as requests

__all__ = ["ACTION"]

_INSTALL = "pip install 'primus-data[fetch]'"


class _Fetch:
    name = "fetch"
    epilog = """examples:
  primus data fetch --dataset HuggingFaceFW/fineweb-edu --name sample-10BT --split 'train[:1%]' --output-dir corpus
  primus data fetch --dataset HuggingFaceFW/fineweb-edu --num-samples 10000 --columns text,url --output-dir corpus
  primus data fetch --input downloads/*.parquet --text-column content --output-dir corpus

Run the same command again after an interruption: it continues. The token is read from HF_TOKEN, or from the file that
`hf auth login` writes."""
    is_shared = False

    def add_arguments(self, parser: Parser) -> None:
        add = parser.add_argument
        add("--dataset", default="", metavar="NAME", help="dataset of the Hugging Face Hub, OWNER/NAME; or ./FOLDER")
        add("--input", nargs="+", default=[], metavar="PATH", help="files, folders and URLs: parquet, jsonl, txt")
        add("--name", default="", metavar="CONFIG", help="config of the dataset (default: its default config)")
        add("--split", default="train", help="split, and which part of it: 'train[:1%%]' (default: train)")
        add("--num-samples", type=arguments.count, metavar="N", help="stop after N rows, such as 10k (default: all)")
        add("--output-dir", required=True, metavar="DIR", help="folder of the shards and their manifest")
        add("--columns", default="", metavar="NAMES", help="columns to keep, or '*' for all (default: text)")
        add("--text-column", default="", metavar="NAME", help="write only this column, as `text`")
        add("--shard-size", type=size, default="512MB", metavar="SIZE", help="text per shard (default: 512MB)")
        add("--compress", choices=("gz", "zst"), default="", help="compress the shards")
        add("--revision", default="", metavar="REV", help="branch, tag or commit of the dataset (default: the newest)")
        add("--endpoint", default="", metavar="URL", help="mirror of the Hub (default: HF_ENDPOINT, or the Hub itself)")
        add("--workers", type=int, default=4, metavar="N", help="files to download at the same time (default: 4)")
        add("--on-error", choices=("stop", "skip"), default="stop", help="what to do at a bad row (default: stop)")
        add(
            "--retry-for",
            type=duration,
            default="5m",
            metavar="TIME",
            help="give up after so long without a byte (default: 5m)",
        )

    def check(self, args: argparse.Namespace, cwd: str) -> tuple[Requirement, ...]:
        request = requests.from_args(args, cwd)
        needs = [Requirement("folder", os.path.join(cwd, args.output_dir), "name another --output-dir")]
        modules = ["huggingface_hub", "httpx", "pyarrow", *(["zstandard"] if args.compress == "zst" else [])]
        needs += [Requirement("module", name, _INSTALL) for name in modules]
        local = [one for one in request.sources if requests.is_local(one)]
        return (*needs, *(Requirement("file", one, "check its path") for one in local))

    def run(self, args: argparse.Namespace, here: Here) -> int:
        from primus_data.fetching.connect import client  # httpx
        from primus_data.fetching.fetch import fetch

        request = requests.from_args(args, os.getcwd())
        addresses = args.input or [args.dataset]
        fetch(request, addresses, os.path.abspath(args.output_dir), client(args.retry_for), args.endpoint, args.workers)
        return 0


ACTION = _Fetch()
