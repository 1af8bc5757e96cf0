"""`primus data fetch` as tests call it, and the dataset that they fetch."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.data.hub import NAME, SIGNATURE, Hub

from primus_data import command
from primus_machine.errors import PrimusError

TOKEN = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz012345"[:34]
FILES, ROWS, GROUP = 4, 600, 90


def text_of(file: int, row: int) -> str:
    """Words of which no two rows have the same, with all that JSON and UTF-8 could spoil."""
    noise = hashlib.sha512(f"{file}/{row}".encode()).hexdigest()
    return f'Zeile {file}/{row}: „ümlaut“ \u2028 \x00 \\ " 😀\n{noise}'


def table(file: int, rows: int = ROWS) -> Any:
    import pyarrow as pa

    return pa.table(
        {
            "text": [text_of(file, row) for row in range(rows)],
            "url": [None if row % 7 == 0 else f"https://x/{file}/{row}" for row in range(rows)],
            "meta": [{"score": row / 3, "tags": ["a", "b"][: row % 3]} for row in range(rows)],
        }
    )


def parquet(found: Any, group: int = GROUP) -> bytes:
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(found, out, row_group_size=group)
    return out.getvalue()


def dataset() -> dict[str, bytes]:
    """Several files with several row groups, and what lies beside the data."""
    files = {f"data/train-{n:05d}-of-{FILES:05d}.parquet": parquet(table(n)) for n in range(FILES)}
    return {**files, "data/test-00000-of-00001.parquet": parquet(table(9, 20)), "README.md": b"# Corpus\n"}


class Fetch:
    """`primus data fetch` with a Hub, in this process: half a second for each start would be all that a test does."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder, self.monkeypatch, self.capfd = folder, monkeypatch, capfd
        monkeypatch.chdir(folder)

    def __call__(self, *words: str, hub: Hub | None = None, code: int = 0, env: Mapping[str, str] | None = None) -> str:
        """What it says."""
        words = (*words, *(of_hub(words, hub) if hub else ()))
        with self.monkeypatch.context() as environ:
            for name, value in {"HF_HOME": str(self.folder / "hf-home"), "NO_PROXY": "*", **(env or {})}.items():
                environ.setenv(name, value)
            try:
                found, refused = command.run(["fetch", *words], ""), ""
            except PrimusError as error:
                found, refused = error.exit_code, str(error)
        said = "".join(self.capfd.readouterr()) + refused
        assert found == code, said
        assert TOKEN not in said
        assert SIGNATURE.partition("=")[2] not in said
        return said

    def rows(self, folder: str = "out") -> list[dict[str, Any]]:
        """All rows of the shards, in their order."""
        paths = sorted((self.folder / folder).glob("*.jsonl"))
        return [json.loads(line) for path in paths for line in path.read_bytes().split(b"\n")[:-1]]

    def manifest(self, folder: str = "out") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / folder / "manifest.json").read_text(encoding="utf-8"))
        return found


def of_hub(words: Sequence[str], hub: Hub) -> tuple[str, ...]:
    """The words that name the Hub and its dataset."""
    return ("--endpoint", hub.url, *(() if "--dataset" in words else ("--dataset", NAME)))


def texts(part: Iterable[tuple[int, int]]) -> list[dict[str, str]]:
    """These rows, each by its file and its number in it."""
    return [{"text": text_of(file, row)} for file, row in part]


TRAIN = [(file, row) for file in range(FILES) for row in range(ROWS)]
