"""Look at a run that has failed: which of its logs are longest. `ACME_POST_MORTEM` makes it misbehave."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


def main(run: Path, exit_code: int) -> int:
    misbehave = os.environ.get("ACME_POST_MORTEM", "")
    if misbehave == "hang":
        time.sleep(600)
    logs = sorted(path.name for path in run.glob("logs/rank_*.log"))
    text = f"acme: exit code {exit_code}; {', '.join(logs)}; token {os.environ.get('HF_TOKEN', 'none')}"
    print(text)
    (run / "post_mortem.txt").write_text(text, encoding="utf-8")
    return 7 if misbehave == "fail" else 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), int(sys.argv[2])))
