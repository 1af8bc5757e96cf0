"""A node that fails tells the others: what stops one stops all, and they need not finish their parts to find out."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from primus_core.errors import PrimusError
from primus_machine.files import plain_json
from primus_machine.files.atomic import read_regular, write_atomically

__all__ = ["Failures"]

_FILE = "failure.json"


class Failures:
    """What is told in a folder. What is there already is of an earlier attempt."""

    def __init__(self, folder: str, node_rank: int) -> None:
        self.path, self.node_rank = f"{folder}/{_FILE}", node_rank
        self.earlier = self._read()

    def _read(self) -> bytes:
        with suppress(OSError):
            return read_regular(self.path, 1 << 16)
        return b""

    def look(self) -> None:
        """Stop if another node has failed.

        Raises:
            PrimusError: it has.
        """
        if (text := self._read()) in (b"", self.earlier):
            return
        with suppress(ValueError, KeyError, TypeError):
            found = plain_json.loads(text)
            what, why, fix = str(found["what"]), f"node {found['node']} stopped at it", str(found["fix"])
            raise PrimusError(what, why=why, fix=fix, kind=str(found["kind"]), meant=str(found["meant"]))

    @contextmanager
    def told(self) -> Iterator[None]:
        """Tell the others of an error in here."""
        try:
            yield
        except PrimusError as error:
            about = {"what": error.what, "fix": error.fix, "kind": error.kind, "meant": error.meant}
            found = about | {"node": str(self.node_rank), "id": os.urandom(4).hex()}
            with suppress(OSError):
                write_atomically(self.path, json.dumps(found), durable=False)
            raise
