"""The files to read: those of a split of the Hub, of local folders and files, and of URLs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import httpx

from primus_data.fetching import formats, progress, splits
from primus_data.fetching.hub import Hub
from primus_data.fetching.network import Client, Refused, Remote
from primus_data.fetching.request import Request, is_local, is_url
from primus_machine.errors import MachineError, PrimusError, RequestError
from primus_machine.units import counted

__all__ = ["Listing", "Source", "find"]

_MOST_CARD = 1 << 24


class Source(NamedTuple):
    """A file of rows."""

    path: str
    """In its repository, on this machine, or on the web."""
    format: formats.Format
    size: int
    sha256: str = ""
    """As the Hub tells it; empty: it does not."""
    mark: str = ""
    """Changes when the file does: a time of change, an ETag."""
    remote: Remote | None = None
    """None: it is on this machine."""
    has_ranges: bool = True
    """Whether a part of it can be read."""

    def identity(self) -> dict[str, Any]:
        """What must stay the same between the starts of a fetch."""
        return {"path": self.path, "size": self.size, "sha256": self.sha256, "mark": self.mark}


class Listing(NamedTuple):
    """The files of the split, in their order."""

    sources: tuple[Source, ...]
    config: str = ""
    revision: str = ""
    """The commit."""
    licence: str = ""
    hub: Hub | None = None

    def error(self, refused: Refused) -> PrimusError:
        """What it means that a server refused a file."""
        if self.hub:
            return self.hub.error(refused)
        kind = RequestError if refused.status == 404 else MachineError
        return kind(f"{refused.url} cannot be read", why=refused.why(), fix="check the address")


def find(request: Request, addresses: Sequence[str], client: Client, endpoint: str, commit: str) -> Listing:
    """The files that a request means. `addresses`: as the person wrote them. `commit`: of an earlier start; or empty.

    Raises:
        PrimusError: there are none, or they cannot be listed.
    """
    first = request.sources[0]
    if len(request.sources) == 1 and not is_url(first) and not is_local(first):
        return _of_hub(request, client, endpoint, commit)
    if len(request.sources) == 1 and os.path.isdir(first):
        return _of_folder(request, first)
    if request.slice.split != "train" or request.name:
        raise RequestError(
            "files have one split, train, and no configs", fix="remove --name, and write --split 'train[...]'"
        )
    pairs = zip(request.sources, addresses, strict=True)
    found = tuple(one for shown_as, address in pairs for one in _named(shown_as, address, client))
    return Listing(found)


def _of_hub(request: Request, client: Client, endpoint: str, commit: str) -> Listing:
    hub = Hub(client, request.sources[0], endpoint)
    info = hub.info(commit or request.revision)
    entries = {one.path: one for one in hub.files(info.commit)}
    configs, default = splits.find(entries, info.card, request.revision)
    config = request.name or default
    names, others = splits.files_of(configs, config, request.slice.split, f"dataset '{hub.name}'")
    if not names:
        raise hub.refuse_without_data(sorted(entries), request.revision)
    _say_others(others, names, "download the dataset, and name its files with --input")
    if any("/partial-" in f"/{name}" for name in names):
        progress.say(
            "data_fetch_partial", f"the Hub has converted only the first rows of split '{request.slice.split}'"
        )
    found = [
        Source(name, kind, entries[name].size, entries[name].sha256, remote=hub.remote(entries[name], info.commit))
        for name in names
        if (kind := formats.of(name))
    ]
    return Listing(tuple(found), config, info.commit, info.licence, hub)


def _of_folder(request: Request, folder: str) -> Listing:
    names = [os.path.relpath(path, folder) for path in _below(folder)]
    card = _card(folder)
    configs, default = splits.find(names, card)
    config = request.name or default
    chosen, unlike = splits.files_of(configs, config, request.slice.split, f"folder '{folder}'")
    if not chosen:
        raise RequestError(f"folder '{folder}' has no file of a known format", fix=f"known: {formats.KNOWN}")
    _say_others(unlike, chosen, f"--input {folder}/*")
    if others := len({name for name in names if formats.of(name)} - {*chosen, *unlike}):
        progress.say("data_fetch_others", f"{counted(others, 'file')} in {folder} not in split '{request.slice.split}'")
    licence = card.get("license")
    return Listing(tuple(_local(os.path.join(folder, name)) for name in chosen), config, "", str(licence or ""))


def _say_others(others: Sequence[str], chosen: Sequence[str], how: str) -> None:
    """Say which files of a split were left out, since a split has one format."""
    if others and (kind := formats.of(chosen[0])):
        which = f"{counted(len(others), 'file')} of another format, such as '{others[0]}'"
        progress.say("data_fetch_formats", f"takes the {kind.kind} files, and leaves out {which}; to take all: {how}")


def _below(folder: str) -> Iterator[str]:
    """Its files, in the order of their paths. Links to folders are not followed: they may lead in a circle."""
    for path, folders, names in os.walk(folder):
        folders.sort()
        yield from (os.path.join(path, name) for name in sorted(names))


def _card(folder: str) -> Mapping[str, Any]:
    """The front matter of a README in a folder."""
    try:
        with open(os.path.join(folder, "README.md"), encoding="utf-8") as file:
            found = re.match(r"---[ \t\r]*\n(.*?)\n---[ \t\r]*\n", file.read(_MOST_CARD), re.S)
    except (OSError, UnicodeDecodeError):
        return {}
    import yaml

    try:
        card = yaml.safe_load(found[1]) if found else {}
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RequestError(f"the front matter of '{folder}/README.md' is not valid YAML", why=str(error)) from None
    return card if isinstance(card, dict) else {}


def _named(shown_as: str, address: str, client: Client) -> Iterator[Source]:
    """What one of `--input` names."""
    if is_url(address):
        yield _of_url(shown_as, address, client)
    elif os.path.isdir(shown_as):
        found = [path for path in sorted(_below(shown_as)) if formats.of(path) and not _is_hidden(path, shown_as)]
        if not found:
            raise RequestError(f"folder '{shown_as}' has no file of a known format", fix=f"known: {formats.KNOWN}")
        yield from map(_local, found)
    else:
        yield _local(shown_as)


def _is_hidden(path: str, folder: str) -> bool:
    return any(part.startswith(".") for part in os.path.relpath(path, folder).split("/"))


def _format(path: str) -> formats.Format:
    found = formats.of(path)
    if not found:
        raise RequestError(f"'{path}' has no known format", fix=f"known: {formats.KNOWN}")
    return found


def _local(path: str) -> Source:
    try:
        found = os.stat(path)
    except OSError as error:
        raise RequestError(f"file '{path}' cannot be read", why=str(error.strerror), fix="check its path") from None
    return Source(path, _format(path), found.st_size, mark=f"{found.st_mtime_ns}")


def _of_url(shown_as: str, address: str, client: Client) -> Source:
    kind = _format(shown_as)
    try:
        headers = client.head(address)
    except httpx.InvalidURL as error:
        raise RequestError(f"'{shown_as}' is not an address", why=str(error)) from None
    except Refused as refused:
        raise Listing(()).error(refused) from None
    total = re.fullmatch(r"bytes 0-0/(\d+)", headers.get("content-range", ""))
    size = total[1] if total else headers.get("content-length", "")
    if not size.isdecimal():
        raise MachineError(f"{shown_as} does not tell its size", fix="download it, and name the file")
    etag = headers.get("etag", "")
    mark = etag or headers.get("last-modified", "")
    remote = Remote(address, shown_as, int(size), mark=etag)
    return Source(shown_as, kind, int(size), mark=mark, remote=remote, has_ranges=bool(total))
