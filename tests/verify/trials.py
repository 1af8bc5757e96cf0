"""What the tests of verify share: `primus direct -- verify`, with a fault in the framework, and its result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.conftest import Run

FAULTS = Path(__file__).parent / "faults"


def verify(primus: Run, config: str, *words: str, fault: str = "", code: int = 0, steps: int = 2) -> dict[str, Any]:
    """The result as JSON."""
    environ = {"PRIMUS_TEST_FAULT": fault, "PYTHONPATH": str(FAULTS)} if fault else {}
    done = primus("direct", "--", "verify", "--config", config, "--json", "--steps", str(steps), *words, env=environ)
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") : done.stdout.rindex("}") + 1])
    return found


def texts(found: dict[str, Any]) -> str:
    """What differs."""
    return "\n".join(finding["text"] for layout in found["layouts"] for finding in layout["findings"])
