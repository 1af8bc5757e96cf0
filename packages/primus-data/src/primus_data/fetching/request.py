"""What a person asked to fetch, checked, and as the data that a later start is compared with."""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

from primus_data.fetching import slices
from primus_machine.errors import Mistakes, RequestError

__all__ = ["Request", "from_args", "is_address", "is_local", "is_url", "shown"]

_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)?")
_SECRETS_OF_URL = re.compile(r"(?<=//)[^/@]*@|[?#].*", re.S)
_MOST_ROWS = 1 << 62


@dataclass(frozen=True)
class Request:
    """What decides the rows and the shards; nothing here is secret."""

    sources: tuple[str, ...]
    """A name of the Hub, or paths and URLs; as they are shown."""
    name: str
    split: str
    num_samples: int
    """0: all."""
    columns: tuple[str, ...]
    """As they are called in the source; empty: all."""
    renamed: bool
    """The one column is written as `text`."""
    shard_size: int
    compress: str
    revision: str
    on_error: str

    @property
    def slice(self) -> slices.Slice:
        """The split and the rows of it."""
        return slices.parse(self.split)

    @property
    def text_column(self) -> str:
        """The column that holds the text, which each row must have; empty: none is known to."""
        if self.renamed:
            return self.columns[0]
        return "text" if not self.columns or "text" in self.columns else ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def from_args(args: argparse.Namespace, cwd: str) -> Request:
    """The request that the arguments make.

    Raises:
        RequestError: what is wrong with them, all of it.
    """
    mistakes = Mistakes()
    with mistakes:
        _check_sources(args)
    with mistakes:
        slices.parse(args.split)
    columns: tuple[str, ...] = ("text",)
    with mistakes:
        columns = _columns(args)
    if args.num_samples is not None and not 0 < args.num_samples < _MOST_ROWS:
        mistakes.add(RequestError(f"--num-samples: {args.num_samples} is not a number of rows", fix="name one above 0"))
    if not 0 < args.workers <= 64:
        mistakes.add(RequestError(f"--workers: {args.workers} is not between 1 and 64", fix="4 suffice mostly"))
    with mistakes:
        _check_output(args, cwd)
    mistakes.refuse()
    given = args.input or [args.dataset]
    return Request(
        sources=tuple(_named(one, cwd) for one in given),
        name=args.name,
        split=args.split,
        num_samples=args.num_samples or 0,
        columns=columns,
        renamed=bool(args.text_column),
        shard_size=args.shard_size,
        compress=args.compress,
        revision=args.revision,
        on_error=args.on_error,
    )


def _named(source: str, cwd: str) -> str:
    if is_url(source):
        return shown(source)
    return os.path.normpath(os.path.join(cwd, os.path.expanduser(source))) if is_local(source) else source


def is_url(source: str) -> bool:
    """Whether it is an address."""
    return source.startswith(("http://", "https://"))


def is_address(url: str) -> bool:
    """Whether an address has a host that can be asked."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname and is_url(url) and url.isprintable() and (parts.port is None or parts.port > 0))
    except ValueError:
        return False


def is_local(source: str) -> bool:
    """Whether `--dataset` names a folder or file: it begins as a path does. What is here decides nothing."""
    return source.startswith((".", "/", "~"))


def shown(url: str) -> str:
    """An address without what may be secret in it: user, password, signature."""
    return _SECRETS_OF_URL.sub("", url)


def _check_sources(args: argparse.Namespace) -> None:
    if bool(args.dataset) == bool(args.input):
        raise RequestError(
            "name either --dataset or --input",
            fix="--dataset OWNER/NAME takes a dataset of the Hugging Face Hub; --input takes files, folders and URLs",
        )
    if args.input:
        args.input = [one if is_url(one) or is_local(one) else f"./{one}" for one in args.input]
    elif not (is_local(args.dataset) or is_url(args.dataset) or _REPO.fullmatch(args.dataset)):
        raise RequestError(
            f"--dataset: '{args.dataset}' is not a name of the Hugging Face Hub",
            fix="write OWNER/NAME as in HuggingFaceFW/fineweb-edu, or a path that begins with ./ or /",
        )
    hub = bool(args.dataset) and not is_local(args.dataset) and not is_url(args.dataset)
    for flag, value in (("--revision", args.revision), ("--endpoint", args.endpoint)):
        if value and not hub:
            raise RequestError(f"{flag} is for datasets of the Hugging Face Hub", fix=f"remove {flag}")
    urls = [one for one in (args.endpoint, args.dataset, *args.input) if is_url(one)]
    if args.endpoint and not is_url(args.endpoint):
        urls.insert(0, args.endpoint)
    for url in urls:
        if not is_address(url):
            raise RequestError(f"'{shown(url)}' is not an address", fix="write https://HOST/PATH")


def _check_output(args: argparse.Namespace, cwd: str) -> None:
    output = os.path.normpath(os.path.join(cwd, args.output_dir))
    for source in args.input or [args.dataset]:
        if not is_url(source) and is_local(source) and f"{output}/".startswith(f"{_named(source, cwd)}/"):
            raise RequestError(
                f"--output-dir: '{output}' lies in '{source}', which is read",
                why="the next start would take the shards for its input",
                fix="name a folder elsewhere",
            )


def _columns(args: argparse.Namespace) -> tuple[str, ...]:
    if args.columns and args.text_column:
        raise RequestError(
            "--columns and --text-column contradict each other",
            fix="--text-column NAME writes this column alone, as `text`; --columns keeps the names",
        )
    if args.columns == "*":
        return ()
    names = tuple(args.columns.split(",")) if args.columns else (args.text_column or "text",)
    if "" in names or len(set(names)) < len(names):
        raise RequestError(f"--columns: '{args.columns}' has an empty or repeated name", fix="write text,url")
    return names
