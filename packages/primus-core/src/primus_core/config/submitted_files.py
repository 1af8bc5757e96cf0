"""The copies that a submitted job reads (`config.submission`), each checked against what was submitted."""

from __future__ import annotations

import os
from typing import Any

from primus_core.config.submission import absolute, original
from primus_machine.errors import MachineError, RequestError
from primus_machine.files import plain_json, trust
from primus_machine.files.atomic import regular
from primus_machine.host import HostRoot

__all__ = ["SCHEMA", "Submission", "checksum"]

SCHEMA = 1


class Submission:
    """The copies, as a job sees them."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        believed = trust.of(HostRoot().environ)
        for name in ("", "/submission.json", "/files"):
            believed.require(f"{directory}{name}", "what was submitted,")
        try:
            self.known = _json(f"{directory}/submission.json")
        except (OSError, ValueError) as error:
            raise MachineError(
                f"{directory} does not contain the submitted files", why=str(error), fix="submit the run again"
            ) from None
        if self.known.get("schema") != SCHEMA:
            wrote = self.known.get("primus_version", "another version")
            raise MachineError(f"{directory} was written by Primus {wrote}", fix="submit the run again")

    def copy(self, path: str) -> str:
        """Where the copy of `path` is, if there is one. A relative path is relative to where it was submitted."""
        given = absolute(path, self.known["cwd"])
        whole = self.known["real"].get(given) or os.path.realpath(given)
        return whole if whole.startswith(f"{self.directory}/") else f"{self.directory}/files{whole}"

    def path(self, path: str) -> str:
        """The file to read for `path`: its copy, or itself where it was not copied.

        Raises:
            MachineError: the copy is gone. The file itself may be another one by now.
        """
        copy = self.copy(path)
        if os.path.exists(copy):
            return copy
        if self.known["files"].get(original(copy), {}).get("copied"):
            raise _spoilt(copy, "removed")
        return path

    def changed(self) -> dict[str, str]:
        """What became of the files since they were submitted: `changed` or `removed` by path.

        Raises:
            RequestError: one of them was not copied, since it holds a secret.
            MachineError: a copy is not what was submitted.
        """
        found = {}
        for path, entry in self.known["files"].items():
            copy = f"{self.directory}/files{path}"
            if entry["copied"] and (copied := checksum(copy)) != entry["sha256"]:
                raise _spoilt(copy, "changed" if copied else "removed")
            now = checksum(path)
            if now != entry["sha256"]:
                found[path] = "changed" if now else "removed"
                if not entry["copied"]:
                    raise RequestError(
                        f"{path} was {found[path]} after the run was submitted",
                        why="it contains a secret, so it was not copied with the other files",
                        fix="restore it and requeue the job, or submit the run again",
                    )
        return found

    def planned(self) -> dict[str, Any]:
        """What was planned when it was submitted."""
        try:
            return _json(f"{self.directory}/planned.json")
        except (OSError, ValueError):
            return {}


def _spoilt(copy: str, what: str) -> MachineError:
    return MachineError(
        f"the submitted copy of {original(copy)} was {what}",
        why=f"the job uses the submitted copies in {copy.removesuffix(original(copy))}",
        fix="restore the copy and requeue the job, or submit the run again",
    )


def checksum(path: str) -> str:
    """The SHA-256 of a file; empty: it cannot be read."""
    from hashlib import sha256

    try:
        with open(path, "rb") as file:
            return sha256(file.read()).hexdigest()
    except OSError:
        return ""


def _json(path: str) -> dict[str, Any]:

    with open(path, encoding="utf-8", opener=regular) as file:
        return dict(plain_json.loads(file.read()))
