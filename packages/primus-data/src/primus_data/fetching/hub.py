"""Datasets of the Hugging Face Hub: their commit, card, files and addresses; what its refusals mean.

It asks what `HfApi` asks, `GET /api/datasets/NAME/revision/REVISION` and `GET /api/datasets/NAME/tree/COMMIT`, by a
client that reports its retries; addresses, token and settings come from the library huggingface_hub.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from primus_data.fetching.network import Client, Refused, Remote
from primus_data.fetching.request import is_address, shown
from primus_data.fetching.splits import CONVERTED
from primus_machine.errors import MachineError, PrimusError, RequestError

__all__ = ["Entry", "Hub", "Info"]

_HUB = "https://huggingface.co"


class Entry(NamedTuple):
    """A file of a repository."""

    path: str
    size: int
    sha256: str
    """Of large files; the Hub has no such checksum of others."""


class Info(NamedTuple):
    """What the Hub tells of a dataset at a revision."""

    commit: str
    card: Mapping[str, Any]
    """The front matter of its README."""

    @property
    def licence(self) -> str:
        """As its card names it; empty: it does not."""
        found = self.card.get("license")
        return ", ".join(map(str, found)) if isinstance(found, list) else str(found or "")


class Hub:
    """One dataset."""

    def __init__(self, client: Client, name: str, endpoint: str) -> None:
        """Prepare to ask.

        Raises:
            MachineError: this process shall not, or cannot.
        """
        from huggingface_hub import constants, get_token

        self.client, self.name = client, name
        self.endpoint = (endpoint or constants.ENDPOINT).rstrip("/")
        self.site = shown(self.endpoint)
        """Its address without a password, for messages."""
        if not is_address(self.endpoint):
            raise MachineError(f"HF_ENDPOINT is not an address: '{self.site}'", fix="set it to https://HOST")
        if constants.HF_HUB_OFFLINE:
            raise MachineError(
                f"dataset '{name}' cannot be fetched offline",
                why="HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set",
                fix="unset it, or read files that are here: --dataset ./FOLDER or --input FILE ...",
            )
        token = get_token() or ""
        if not (token.isascii() and token.isprintable()) or " " in token:
            raise MachineError("the token of the Hub has characters that no token has", fix="set HF_TOKEN again")
        self.has_token = bool(token)
        # Not `build_hf_headers`, which may ask the endpoint for a list of its own, without a time limit.
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def info(self, revision: str) -> Info:
        """Its commit at a revision (empty: the newest), and its card.

        Raises:
            PrimusError: there is none, or it is not for everybody.
        """
        path = f"/revision/{quote(revision, safe='')}" if revision else ""
        data, _ = self._json(f"{self.endpoint}/api/datasets/{self.name}{path}", revision)
        if not isinstance(data, dict) or not isinstance(data.get("sha"), str):
            raise self._no_hub("it tells no commit")
        card = data.get("cardData")
        return Info(data["sha"], card if isinstance(card, dict) else {})

    def files(self, commit: str) -> Iterator[Entry]:
        """All its files.

        Raises:
            PrimusError: they cannot be listed.
        """
        url = f"{self.endpoint}/api/datasets/{self.name}/tree/{quote(commit, safe='')}?recursive=true&expand=false"
        seen = set[str]()
        while url:
            seen.add(url)
            data, url = self._json(url, commit)
            if not isinstance(data, list):
                raise self._no_hub("it lists no files")
            url = url.replace(f"{_HUB}/", f"{self.endpoint}/", 1)  # a mirror may pass it on as it is
            if url and not url.startswith(f"{self.endpoint}/"):  # the token goes with it
                raise self._no_hub(f"its list continues at {shown(url)}, another host")
            if url in seen:
                raise self._no_hub("its list of files has no end")
            yield from map(self._entry, (one for one in data if isinstance(one, dict) and one.get("type") == "file"))

    def _entry(self, one: Mapping[str, Any]) -> Entry:
        path, size, lfs = one.get("path"), one.get("size"), one.get("lfs")
        lfs = lfs if isinstance(lfs, dict) else {}
        size = lfs.get("size", size)
        if not isinstance(path, str) or not isinstance(size, int) or size < 0:
            raise self._no_hub("it lists a file without path and size")
        digest = str(lfs.get("oid") or "").removeprefix("sha256:")  # as some mirrors write it
        return Entry(path, size, digest if re.fullmatch(r"[0-9a-f]{64}", digest) else "")

    def remote(self, entry: Entry, commit: str) -> Remote:
        """A file at a commit, to read."""
        from huggingface_hub import hf_hub_url

        url = hf_hub_url(self.name, entry.path, repo_type="dataset", revision=commit, endpoint=self.endpoint)
        return Remote(url, entry.path, entry.size, headers=tuple(self.headers.items()))

    def _json(self, url: str, revision: str) -> tuple[Any, str]:
        try:
            return self.client.json(url, self.headers)
        except Refused as refused:
            raise self.error(refused, revision) from None

    def _no_hub(self, why: str) -> PrimusError:
        return PrimusError(f"{self.site} does not answer as the Hugging Face Hub does", why=why, fix="check --endpoint")

    def error(self, refused: Refused, revision: str = "") -> PrimusError:
        """What it means that the Hub refused, and what to do."""
        why, page = refused.why(), f"{self.site}/datasets/{self.name}"
        if not refused.url.startswith(self.site):
            return PrimusError("the store of the Hub's files refused", why=why, fix="run the same command again")
        if refused.code == "RevisionNotFound":
            return RequestError(f"dataset '{self.name}' has no revision '{revision}'", why=why, fix=f"see {page}")
        if refused.code == "GatedRepo" or refused.status == 403:
            return self._gated(why, page)
        if refused.status == 401 and refused.code != "RepoNotFound":
            return self._unauthorized(why, page)
        if refused.status in (401, 404):
            return self._not_found(why)
        return PrimusError(f"dataset '{self.name}' cannot be fetched", why=why, fix=f"see {page}")

    def _gated(self, why: str, page: str) -> MachineError:
        token = "the account of this token" if self.has_token else "your account"
        then = "" if self.has_token else f", then set HF_TOKEN to a token of it ({self.site}/settings/tokens)"
        fix = f"accept the terms at {page} with {token}{then}"
        return MachineError(f"dataset '{self.name}' is not open to everybody", why=why, fix=fix)

    def _unauthorized(self, why: str, page: str) -> MachineError:
        if self.has_token:
            fix = f"make a new token at {self.site}/settings/tokens, and set HF_TOKEN to it"
            return MachineError("the Hub does not take the token", why=why, fix=fix)
        return self._gated(why, page)

    def _not_found(self, why: str) -> RequestError:
        here = f"for a local folder, write --dataset ./{self.name}"
        private = (
            "if it is private, set HF_TOKEN" if not self.has_token else "if it is private, its owner must let you in"
        )
        return RequestError(f"dataset '{self.name}' not found", why=why, fix=f"check its name; {private}; {here}")

    def refuse_without_data(self, names: list[str], revision: str) -> RequestError:
        """The error for a repository without a file that can be read."""
        script = f"{self.name.rpartition('/')[2]}.py"
        converted = "" if revision == CONVERTED else f"try --revision {CONVERTED}, where the Hub has it as parquet"
        if script in names:
            why = f"its script {script} would make the data, and no code of a dataset is run here"
            return RequestError(f"dataset '{self.name}' needs its own code", why=why, fix=converted)
        kinds = sorted({"." + name.rpartition(".")[2] for name in names if "." in name.rpartition("/")[2]})
        why = f"it has files of the kinds {', '.join(kinds[:10]) or 'none'}"
        return RequestError(f"dataset '{self.name}' has no files of a known format", why=why, fix=converted)
