"""What the tests of wrong requests share: one mistake, told to `config validate`, to a dry run and to a launch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from primus_core.cli.main import main

VALIDATE, DRY_RUN, LAUNCH = "config validate", "dry run", "launch"
_WHOLE = re.compile(r"^       primus .*\n", re.MULTILINE)
"""The command that was typed, mended: each of the three has its own."""
_STARTED = re.compile(r"_\d{4}_\d\d_\d\d_\d{6}")
"""The second in a run's name: the commands do not run in the same one."""
_SET_BY_MACHINES = ("NNODES", "NODE_RANK", "GPUS_PER_NODE", "MASTER_ADDR", "MASTER_PORT", "WANDB_API_KEY", "WANDB_MODE")


class Mistake(NamedTuple):
    """One wrong request: what differs from a right one, and what is said."""

    said: str | tuple[str, ...]
    """Pieces of the message."""
    change: tuple[str, str] = ("", "")
    """Text of the experiment, and what stands in its place."""
    words: str = ""
    """Settings on the command line."""
    options: str = ""
    """Options of the runtime, which `config validate` does not have."""
    environ: Mapping[str, str] = {}
    files: Mapping[str, str] = {}
    """Further files of the project."""
    code: int = 2


class Answer(NamedTuple):
    """Of one command."""

    code: int
    out: str
    err: str


class Asker:
    """Runs the three commands in a folder with an experiment."""

    def __init__(
        self, experiment: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.experiment, self.folder, self.capsys = experiment, folder, capsys
        self.monkeypatch = monkeypatch
        monkeypatch.chdir(folder)
        monkeypatch.setenv("HOME", str(folder))
        for name in _SET_BY_MACHINES:
            monkeypatch.delenv(name, raising=False)

    def ask(self, mistake: Mistake, *, launches: bool = True) -> dict[str, Answer]:
        """What each command says; none of them may leave a file."""
        old, new = mistake.change
        assert old in self.experiment
        (self.folder / "exp.yaml").write_text(self.experiment.replace(old, new, 1) if old else self.experiment + new)
        for name, text in mistake.files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)
        for name, value in mistake.environ.items():
            self.monkeypatch.setenv(name, value)
        words, options = mistake.words.split(), mistake.options.split()
        train = ("--", "train", "pretrain", "--config", "exp.yaml", *words)
        commands: dict[str, Sequence[str]] = {
            VALIDATE: ("config", "validate", "exp.yaml", *words),
            DRY_RUN: ("direct", "--dry-run", *options, *train),
            LAUNCH: ("direct", *options, *train),
        }
        if options:
            del commands[VALIDATE]
        if not launches:
            del commands[LAUNCH]
        return {name: self._answer(command) for name, command in commands.items()}

    def _answer(self, command: Sequence[str]) -> Answer:
        before = sorted(self.folder.rglob("*"))
        code = main(list(command))
        out, err = self.capsys.readouterr()
        left = {path.relative_to(self.folder).parts[0] for path in self.folder.rglob("*") if path not in before}
        assert not left, f"{' '.join(command)} left {left}: {err}"
        return Answer(code, out, _WHOLE.sub("", _STARTED.sub("", err)))


def refused_alike(asker: Asker, mistake: Mistake) -> str:
    """What all three say: the same code, the same words, and what the mistake names in them."""
    answers = asker.ask(mistake)
    launch = answers[LAUNCH]
    assert (launch.code, launch.out) == (mistake.code, ""), launch.err
    assert answers == dict.fromkeys(answers, launch)
    for piece in (mistake.said,) if isinstance(mistake.said, str) else mistake.said:
        assert piece in launch.err, launch.err
    return launch.err
