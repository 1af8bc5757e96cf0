"""A project folder for tests: an experiment named `tiny`, its text, a cache, and `primus` run in it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.conftest import plain_environ

from primus_core.journal import summary

TASK = ("--", "train", "pretrain", "--config", "exp.yaml")


class Project:
    """A folder with the experiment, its text, and a cache of its own."""

    def __init__(self, folder: Path, environ: Mapping[str, str], experiment: str, cache: Path | None = None) -> None:
        self.folder = folder
        self.environ = {**plain_environ(), **environ, "XDG_CACHE_HOME": str(cache or folder / "cache")}
        (folder / "text").mkdir()
        for number in range(40):
            lines = (f"w{(number * 13 + i * i) % 211} of {i}" for i in range(400))
            (folder / "text" / f"{number}.md").write_text("\n".join(lines))
        (folder / "exp.yaml").write_text(experiment, encoding="utf-8")

    def start(self, *words: str, **more: str) -> subprocess.Popen[str]:
        """Start `primus` here; its lines go to a pipe each."""
        return subprocess.Popen(
            [str(Path(sys.executable).with_name("primus")), *words], env={**self.environ, **more}, cwd=self.folder,
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run `primus` here, however it ends."""
        with self.start(*words, **more) as process:
            try:
                out, err = process.communicate(timeout=300)
            except BaseException:
                process.terminate()
                raise
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def __call__(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run `primus` here; it succeeds."""
        done = self.run(*words, **more)
        assert done.returncode == 0, done.stderr[-5000:]
        return done

    @property
    def newest(self) -> Path:
        """The last run's directory."""
        return (self.folder / "output/tiny").resolve()


def losses(run: Path) -> list[float]:
    """Of each step."""
    return [row["loss"] for row in rows(run)]


def rows(run: Path) -> list[dict[str, Any]]:
    """The steps so far."""
    return summary.read(str(run / "metrics.jsonl"))
