"""Fifty kinds of secrets by each road into a run: they are in no file, on no screen and in no process list."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.machine.repositories import commit, git
from tests.machine.secret_kinds import KINDS, PRIVATE_KEY, found_in

from primus_core.journal.events import Events
from primus_core.runs import snapshot
from primus_machine.captures import capture
from primus_machine.secrets.redaction import looks_secret, redact

TASKS = """
import os, sys
from pathlib import Path
from primus_core import register_task
from primus_core.journal.events import Events

@register_task("leak")
def leak(call):
    texts = [value for name, value in os.environ.items() if name.startswith("NOTE_")]
    for text in texts:
        print("out:", text)
        print("err:", text, file=sys.stderr)
        print([text], {"a": text})
    print(Path("key.txt").read_text())
    Events(call.run_dir + "/logs/events.jsonl").emit("told", texts=texts)
    raise ValueError("; ".join(texts) + Path("key.txt").read_text())
"""
HOOK = "import os\nfor name, value in list(os.environ.items()):\n    if name.startswith('NOTE_'):\n        print('said', value)\n"
TOKEN = KINDS["github"][0]


def test_there_are_fifty_kinds() -> None:
    assert len(KINDS) + 1 >= 50
    assert not found_in("\n".join(redact(text) for text, _ in KINDS.values()) + redact(PRIVATE_KEY))
    assert len(found_in("\n".join(text for text, _ in KINDS.values()) + PRIVATE_KEY)) == len(KINDS) + 4


@pytest.fixture
def leaky(tmp_path: Path) -> Path:
    """A repository full of secrets: in files, a name, a remote, a hook, a file of options."""
    folder = tmp_path / "project"
    (folder / "hooks").mkdir(parents=True)
    (folder / "tasks.py").write_text(TASKS)
    (folder / "primus.yaml").write_text("plugins: [./tasks.py]\n")
    (folder / "changed.py").write_text("x = 1\n")
    git(folder, "init", "--quiet")
    (folder / ".gitignore").write_text("output\n*.env\n")
    commit(folder)
    lines = "".join(f"# {text}\n" for text, _ in KINDS.values())
    (folder / "changed.py").write_text(f"x = 2\n{lines}{PRIVATE_KEY}\n")
    (folder / "new.py").write_text(f"{PRIVATE_KEY}\n{lines}y = 2\n")
    (folder / "key.txt").write_text(f"{PRIVATE_KEY}\n")
    (folder / f"{TOKEN}.txt").write_text("a file with such a name\n")
    (folder / "hooks/1.py").write_text(HOOK + f"print('env.LATER_SETTING={KINDS['npm'][0]}')\n")
    git(folder, "remote", "add", "origin", KINDS["token in a url"][0])
    (folder / "s.env").write_text(f"FROM_FILE={KINDS['vault'][0]}\n")
    return folder


def everything(result: subprocess.CompletedProcess[str], run: Path) -> dict[str, str]:
    """All texts that a run left, the names of its files too."""
    files = {str(path): path.read_text(errors="replace") for path in run.rglob("*") if path.is_file()}
    return {
        **files,
        "names": "\n".join(str(path.relative_to(run)) for path in run.rglob("*")),
        "stdout": result.stdout,
        "stderr": result.stderr,
    }


@pytest.mark.torch
@pytest.mark.full
def test_no_kind_leaves_by_any_road_of_a_run_and_what_holds_code_is_private(primus: Run, leaky: Path) -> None:
    env = {f"NOTE_{number}": text for number, (text, _) in enumerate(KINDS.values())}
    options = ("--env", f"GIVEN={KINDS['pypi'][0]}", "--env", "s.env", "--log-file", "output.log")
    result = primus("direct", "--single", *options, "--", "leak", cwd=leaky, env={**env, "NOTE_KEY": PRIVATE_KEY})
    assert result.returncode == 1, result.stderr
    run = (leaky / "output/leak").resolve()
    seen = everything(result, run)
    seen["output.log"] = (leaky / "output.log").read_text()
    for name, text in seen.items():
        assert not found_in(text), name
    assert seen["stdout"].count("out: ") == len(KINDS) + 1
    for path in ("code/diff.patch", "logs/rank_0.log", "logs/launch.log", "logs/events.jsonl", "metadata.json"):
        assert "<secret>" in seen[f"{run}/{path}"], path
    assert "<secret>.txt" in seen[f"{run}/code/code.json"], "the file whose name is a secret"
    for folder in ("env", "code", "config/hooks"):
        assert stat.S_IMODE((run / folder).stat().st_mode) == 0o700, folder
        for file in (run / folder).iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    for name in ("plan.json", "logs/failures/rank_0.json"):  # a traceback has lines of code
        assert stat.S_IMODE((run / name).stat().st_mode) == 0o600, name
    for command in (
        ("runs", "show", "leak", "--json"),
        ("runs", "list"),
        ("logs", "leak"),
        ("replay", "leak", "--check"),
    ):
        again = primus(*command, cwd=leaky)
        assert not found_in(again.stdout + again.stderr), command


@pytest.mark.parametrize(
    "words",
    [
        ("direct", "--dry-run", "--", "leak"),
        ("direct", "--dry-run", "--json", "--", "leak"),
        ("env", "show", "--json"),
        ("env", "explain"),
    ],
)
@pytest.mark.full
def test_no_kind_is_in_what_is_only_shown(primus: Run, leaky: Path, words: tuple[str, ...]) -> None:
    shows_no_kind(primus, leaky, *words)


def shows_no_kind(primus: Run, leaky: Path, *words: str) -> None:
    """A command in a folder and an environment full of secrets prints none; one with LABEL among its words is refused."""
    leaky = leaky.rename(leaky.with_name(KINDS["github app"][0]))  # the path to it is shown, too
    kinds = list(KINDS.values())
    env = {f"NOTE_{number}": text for number, (text, _) in enumerate(kinds)}
    given = [word.replace("LABEL", f"note={TOKEN}") for word in words]
    if words[0] in ("container", "direct"):
        given[1:1] = [word for number, (text, _) in enumerate(kinds) for word in ("--env", f"GIVEN_{number}={text}")]
    result = primus(*given, cwd=leaky, env=env)
    assert not found_in(result.stdout + result.stderr)
    assert result.returncode == (2 if "LABEL" in words else 0), result.stderr
    if "LABEL" in words:
        assert "contains a secret" in result.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_refused_as_a_word_and_hidden_in_events_and_environments(kind: str, tmp_path: Path) -> None:
    text, secret = KINDS[kind]
    Events(str(tmp_path / "events.jsonl"), run="x").emit("told", what=text, deep={"a": [text]})
    assert secret not in (tmp_path / "events.jsonl").read_text()
    assert json.loads((tmp_path / "events.jsonl").read_text())["run"] == "x"
    assert looks_secret(text)


def test_an_event_does_not_show_the_value_of_a_secret_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PW", "correct horse")
    Events(str(tmp_path / "events.jsonl")).emit("told", what=["with correct horse"])
    assert json.loads((tmp_path / "events.jsonl").read_text())["what"] == ["with <secret>"]


def test_no_kind_is_in_a_capture_of_a_machine() -> None:
    packed = capture._archive({f"proc/{number}": text for number, (text, _) in enumerate(KINDS.values())}, ())
    assert not found_in(packed.decode(errors="replace"))
    assert b"<secret>" in packed


@pytest.mark.full
def test_the_record_of_a_run_has_no_secret_of_the_path_to_it(primus: Run, project: Path) -> None:
    folder = project.rename(project.with_name(TOKEN))
    result = primus("direct", "--single", "--", "behave", "exit", "0", cwd=folder)
    assert result.returncode == 0, result.stderr
    text = ((folder / "output/behave").resolve() / "metadata.json").read_text()
    assert not found_in(text)
    assert "/<secret>" in json.loads(text)["cwd"]


def test_a_known_value_within_another_variable_is_not_explained(primus: Run, tmp_path: Path) -> None:
    env = {"HF_TOKEN": "planted-4d-value", "NCCL_DEBUG_FILE": "/tmp/planted-4d-value.log"}
    result = primus("env", "explain", "NCCL_DEBUG_FILE", cwd=tmp_path, env=env)
    assert "NCCL_DEBUG_FILE" in result.stdout
    assert "/tmp/<secret>.log" in result.stdout
    assert "planted-4d" not in result.stdout + result.stderr


def test_an_error_does_not_quote_a_secret(primus: Run, tmp_path: Path) -> None:
    result = primus("direct", "--", "planted-4d-value", cwd=tmp_path, env={"HF_TOKEN": "planted-4d-value"})
    assert result.returncode == 2
    assert "<secret>" in result.stderr
    assert "planted-4d" not in result.stdout + result.stderr


def test_the_patch_of_an_outer_layer_is_saved_without_the_secrets_of_the_layer_inside(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/code.json").write_text("{}")
    (tmp_path / "code/diff.patch").write_text("+password_of_inside = planted-4d-value\n")
    code = snapshot._known_code(str(tmp_path), ("planted-4d-value",))
    assert code is not None
    assert code.patch == "+password_of_inside = <secret>\n"
