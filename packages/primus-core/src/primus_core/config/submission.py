"""What was submitted: copies of the files that a run was planned from. Its job reads these, whenever it starts.

    <run>/submitted/files/<absolute path>    the copies; `extends`, hooks and models find each other as they did
    <run>/submitted/submission.json          where it was submitted, and the checksum of each file
    <run>/submitted/planned.json             what was planned for the first node, as far as it was known

A file that holds a secret is not copied: a link in its place leads to it, and the job does not start if it has changed.
`runs.submitting` writes them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from primus_core import variables
from primus_machine.variables import RUN_DIR

if TYPE_CHECKING:
    from primus_core.config.submitted_files import Submission

__all__ = ["FOLDER", "absolute", "of", "original", "path"]

FOLDER = "submitted"


def of(environ: Mapping[str, str]) -> Submission | None:
    """The submission that a job belongs to; None: this is no such job."""
    directory = environ.get(variables.SUBMITTED, "")
    return _read(directory) if directory and directory == f"{environ.get(RUN_DIR)}/{FOLDER}" else None


@cache
def _read(directory: str) -> Submission:
    """It is written once, and asked for each path."""
    from primus_core.config.submitted_files import Submission

    return Submission(directory)


def path(given: str, environ: Mapping[str, str]) -> str:
    """The file to read for the path `given`: in a submitted job its copy, if there is one."""
    submission = of(environ)
    return submission.path(given) if submission else given


def original(path: str) -> str:
    """What a copy is the copy of, by its path alone; another path is itself."""
    _, is_copy, rest = path.partition(f"/{FOLDER}/files/")
    return f"/{rest}" if is_copy else path


def absolute(path: str, cwd: str) -> str:
    """`path` from the root on. A `..` stays: behind a link, it is not what its letters say."""
    parts = os.path.join(cwd, os.path.expanduser(path)).split("/")
    return f"/{'/'.join(part for part in parts if part not in ('', '.'))}"
