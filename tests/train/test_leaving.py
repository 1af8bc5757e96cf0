"""A worker whose work is done is not aborted while the interpreter is torn down."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.conftest import plain_environ

_WORKER = """
import os, sys
from primus_train.kit.leaving import Leaving
leaving = Leaving()
import atexit
atexit.register(print, "a framework's exit handler")
class HeldByAThreadOfGloo:
    def __del__(self, abort=os.abort): abort()
held = HeldByAThreadOfGloo()
"""


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("leaving.code = 0", 0),
        ("leaving.code = 143; sys.exit(143)", 143),
        ("del HeldByAThreadOfGloo.__del__; sys.exit(7)", 7),
        ("", -6),
    ],
    ids=["done", "told to end", "failed", "what is avoided"],
)
def test_teardown_ends_no_worker_whose_work_is_done(end: str, code: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _WORKER + end], env=plain_environ(), capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (code, "a framework's exit handler\n"), ended.stderr
