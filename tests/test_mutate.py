"""The mutation tests find what no test notices, leave the checkout alone, and refuse a list that is out of date."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests import mutate
from tests.conftest import ROOT

FILES = "primus-machine/src/primus_machine/files/atomic.py"
WRITER = "tests/core/test_background_writer.py"


def tried(environ: dict[str, str], folder: Path, known: str = "", survived: str = "", *words: str) -> tuple[int, str]:
    """The exit code and the last lines of the command with these lists."""
    (folder / "mutants.toml").write_text(known)
    (folder / "mutants-survived.toml").write_text(survived or "survived = []")
    command = [sys.executable, "-m", "tests.mutate", "--data", str(folder), *words]
    done = subprocess.run(command, env=environ, cwd=ROOT, text=True, capture_output=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_every_mutant_is_another_program(tmp_path: Path) -> None:
    source = (ROOT / "packages" / FILES).read_bytes()
    mutants = list(mutate.generated(FILES, ()))
    assert len({one[:3] for one in mutants}) == len(mutants) > 10
    changed = [source[: one.start] + one.new.encode() + source[one.end :] for one in mutants]
    dumped = [ast.dump(ast.parse(text)) for text in changed]
    assert len({*dumped, ast.dump(ast.parse(source))}) == len(mutants) + 1
    (flush,) = [one for one in mutants if one.change == "os.fsync(file.fileno()) → pass"]
    assert (flush.function, source.splitlines()[flush.line - 1].strip()) == (
        "write_atomically",
        b"os.fsync(file.fileno())",
    )


@pytest.mark.full
def test_a_mutation_is_killed_or_has_survived_and_the_checkout_stays_as_it_is(
    clean_environ: dict[str, str], tmp_path: Path
) -> None:
    before = (ROOT / "packages/primus-machine/src/primus_machine/files/writer.py").read_bytes()
    mutation = f"""
[tests]
[[known]]
file = "primus-machine/src/primus_machine/files/writer.py"
old = "daemon=True"
new = "daemon=False"
tests = ["{WRITER}::test_text_arrives_whole_and_in_order"]
[[known]]
file = "primus-machine/src/primus_machine/files/writer.py"
old = "self._queue.append((descriptor, data))"
new = "pass"
tests = ["{WRITER}::test_text_arrives_whole_and_in_order"]
"""
    code, said = tried(clean_environ, tmp_path, mutation, "", "--known")
    assert code == 1
    assert "1/2 survived: primus_machine/files/writer.py:" in said
    assert f"2/2 killed by {WRITER}::test_text_arrives_whole_and_in_order" in said
    assert "daemon=True → daemon=False\n2 mutations" in said.partition("survived, not listed: ")[2]
    assert (ROOT / "packages/primus-machine/src/primus_machine/files/writer.py").read_bytes() == before


def test_an_entry_whose_mutation_is_gone_is_refused(clean_environ: dict[str, str], tmp_path: Path) -> None:
    entry = f'[[survived]]\nfile = "{FILES}"\nfunction = "write"\nchange = "1 → 2"\nreason = "It was so."\n'
    code, said = tried(clean_environ, tmp_path, f'known = []\n[tests]\n"{FILES}" = ["{WRITER}"]\n', entry)
    assert code == 1
    assert "there is no such mutation" in said
    assert "'write', '1 → 2'" in said


@pytest.mark.full
def test_a_named_mutation_of_a_text_that_is_gone_is_refused(clean_environ: dict[str, str], tmp_path: Path) -> None:
    entry = f'[tests]\n[[known]]\nfile = "{FILES}"\nold = "os.sync()"\nnew = "pass"\ntests = ["{WRITER}"]\n'
    code, said = tried(clean_environ, tmp_path, entry, "", "--known")
    assert code == 1
    assert "must have this text once: os.sync()" in said


def test_the_lists_fit_the_code() -> None:
    """Without a run: what is named is there, and so are the tests."""
    data, survived = (tomllib.loads((ROOT / f"tests/mutants{end}.toml").read_text()) for end in ("", "-survived"))
    everything = {one[:3] for file, tests in data["tests"].items() for one in mutate.generated(file, tests)}
    for entry in survived["survived"]:
        assert (entry["file"], entry["function"], entry["change"]) in everything
        assert entry["reason"]
    named = [mutate.named(**entry) for entry in data["known"]]
    for test in {test for one in named for test in one.tests} | {
        test for tests in data["tests"].values() for test in tests
    }:
        path, _, function = test.partition("::")
        assert f"def {function}" in (ROOT / path).read_text() if function else (ROOT / path).exists()
