"""What the tests of verify share: `primus direct -- verify`, with a fault in the framework, and its result."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conftest import Run

FAULTS = Path(__file__).parent / "faults"


Verify = Callable[..., dict[str, Any]]


def verifier(primus: Run, folder: Path) -> Verify:
    """`verify(config, *words, fault="", code=0, steps=2)`: the result as JSON."""

    def verify(config: str, *words: str, fault: str = "", code: int = 0, steps: int = 2) -> dict[str, Any]:
        environ = {"PRIMUS_TEST_FAULT": fault, "PYTHONPATH": str(FAULTS)} if fault else {}
        more = ("--config", config, "--json", "--steps", str(steps), *words)
        environ |= {"PRIMUS_CACHE": str(folder / "cache")}
        done = primus("direct", "--", "verify", *more, env=environ, timeout=1800)
        assert done.returncode == code, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") : done.stdout.rindex("}") + 1])
        return found | {"progress": done.stderr}

    return verify


def texts(found: dict[str, Any]) -> str:
    """What differs."""
    return "\n".join(finding["text"] for layout in found["layouts"] for finding in layout["findings"])
