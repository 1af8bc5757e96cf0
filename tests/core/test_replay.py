"""A run is started again as it was, elsewhere and later; and where it could not be the same run, nothing starts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run
from tests.core.test_direct import metadata, run_of
from tests.machine import machines
from tests.machine.repositories import commit, git

from primus_core.runs.saved import load

TASKS = '''
"""A task that writes down what it gets."""
import json, os
from primus_core import register_task

@register_task("speak")
def speak(call):
    "Write it to the file that $SEEN names."
    with open(os.environ["SEEN"], "w") as file:
        json.dump({"environ": dict(os.environ), "words": call.words}, file)
'''
HOOK = 'echo "env.FROM_HOOK=$1 in $PLACE"\n'
PATCH = 'print("env.FROM_PATCH=patched")\n'
EXPERIMENT = """\
exp_name: down
env: {STEEPNESS: "3", API_KEY: "${MY_KEY}"}
modules:
  pre_trainer:
    framework: countdown
    overrides: {steps: 4, loss.start: 8}
"""
FAILED = 3
"""This machine cannot: nothing was started."""

ScriptOutput = Callable[..., dict[str, Any]]


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A project with the task, a hook, and a patch."""
    folder = tmp_path / "project"
    (folder / "hooks/speak").mkdir(parents=True)
    (folder / "hooks/speak/01-say.sh").write_text(HOOK)
    (folder / "fix.py").write_text(PATCH)
    (folder / "primus.yaml").write_text("plugins: [./tasks.py]\n")
    (folder / "tasks.py").write_text(TASKS)
    return folder


@pytest.fixture
def spoken(primus: Run, workplace: Path) -> ScriptOutput:
    """`spoken(*words, env=..., cwd=...)`: what the task got that these words start."""
    seen = workplace.parent / "seen.json"

    def run(*words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> dict[str, Any]:
        seen.unlink(missing_ok=True)
        result = primus(*words, cwd=cwd or workplace, env={"SEEN": str(seen), **(env or {})})
        assert result.returncode == 0, result.stderr
        return {**json.loads(seen.read_text()), "stderr": result.stderr}

    return run


@pytest.fixture
def first(spoken: ScriptOutput, workplace: Path) -> Path:
    """The directory of a run of that task."""
    env = {
        "OMP_NUM_THREADS": "3",
        "PLACE": "there",
        "MESSAGE": "two\nlines",
        "SSH_TTY": "1",
    }
    words = ("--env", "COLOUR=red", "--env", "MY_TOKEN=the-second-token", "--patch", "fix.py")
    spoken("direct", *words, "--", "speak", "a b", "--flag", env=env)
    return run_of(workplace, "speak")


@pytest.fixture
def trained(primus: Run, third_party: str, tmp_path: Path) -> Path:
    """The directory of a training run with acme's backend, whose experiment is gone."""
    (tmp_path / "down.yaml").write_text(EXPERIMENT)
    words = ("direct", "--single", "--", "train", "pretrain", "--config", "down.yaml", "steps=5")
    result = primus(*words, env={"PYTHONPATH": third_party, "MY_KEY": "the-third-secret"})
    assert result.returncode == 0, result.stderr
    (tmp_path / "down.yaml").unlink()
    return run_of(tmp_path, "down")


def checked(primus: Run, directory: Path, *words: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What `primus replay --check --json` says, with the exit code as `code`; it writes nothing."""
    before = everything(directory.parent)
    env = {"SEEN": str(directory), "MY_TOKEN": "x-second-token", **(env or {})}
    result = primus("replay", str(directory), "--check", "--json", *words, env=env)
    assert everything(directory.parent) == before
    found: dict[str, Any] = json.loads(result.stdout)
    assert found["replayable"] is (result.returncode == 0), result.stderr
    return {**found, "code": result.returncode}


def row(found: Mapping[str, Any], name: str) -> dict[str, str]:
    """The difference of that name."""
    [one] = [row for row in found["differences"] if row["name"] == name]
    return dict(one)


def everything(folder: Path) -> list[str]:
    """Every path below a folder."""
    return sorted(str(path) for path in folder.rglob("*"))


def rewritten(directory: Path, texts: Mapping[str, str]) -> None:
    """Other text in files of a snapshot, by path, with the checksums to match."""
    manifest = json.loads((directory / "snapshot.json").read_text())
    for path, text in texts.items():
        (directory / path).write_text(text)
        manifest["files"][path] = {"sha256": sha256(text.encode()).hexdigest(), "bytes": len(text.encode())}
    (directory / "snapshot.json").write_text(json.dumps(manifest))


def on(directory: Path, model: str, *, gpus: int = 8, used: int = 8) -> None:
    """Make a run's snapshot say that it had these GPUs."""
    system = json.loads((directory / "env/system_info.json").read_text())
    system |= {"gpu_model": model, "physical_gpus": gpus, "gpus": [{"gpu": n} for n in range(gpus)], "rocm": "6.4.1"}
    plan = json.loads((directory / "plan.json").read_text()) | {"gpu_model": model}
    plan["distributed"]["gpus_per_node"] = used
    rewritten(directory, {"env/system_info.json": json.dumps(system), "plan.json": json.dumps(plan)})


def machine(folder: Path, *trees: Mapping[str, str]) -> str:
    """A folder that `--assume-host` takes."""
    machines.write(folder, machines.base(), *trees)
    return str(folder)


# What comes back.


@pytest.mark.full
@pytest.mark.smoke
def test_a_run_comes_back_with_its_words_and_environment(spoken: ScriptOutput, first: Path) -> None:
    now = {
        "OMP_NUM_THREADS": "7",
        "NCCL_DEBUG": "INFO",
        "PLACE": "here",
        "MY_TOKEN": "new-token",
        "SSH_TTY": "2",
        "NEW": "1",
    }
    again = spoken("replay", str(first), env=now)
    assert again["words"] == ["a b", "--flag"]
    environ = again["environ"]
    assert {name: environ.get(name) for name in ("OMP_NUM_THREADS", "MESSAGE", "COLOUR", "PLACE")} == {
        "OMP_NUM_THREADS": "3", "MESSAGE": "two\nlines", "COLOUR": "red", "PLACE": "there",
    }  # fmt: skip
    assert (environ["FROM_HOOK"], environ["FROM_PATCH"]) == ("speak in there", "patched")
    assert "NCCL_DEBUG" not in environ, "it changes what a run does, and was not set then"
    assert environ["NEW"] == "1", "nothing is known to depend on it; the report notes it"
    assert environ["SSH_TTY"] == "2", "a session's own variables are those of this session"
    assert environ["MY_TOKEN"] == "new-token"


@pytest.mark.full
def test_paths_below_the_run_directory_are_those_of_the_new_run(spoken: ScriptOutput, workplace: Path) -> None:
    spoken("direct", "--", "speak")
    old = run_of(workplace, "speak")
    new = spoken("replay", "speak")["environ"]
    assert new["PRIMUS_RUN_DIR"] == str(run_of(workplace, "speak")) != str(old)
    assert new["PRIMUS_METRICS_FILE"].startswith(new["PRIMUS_RUN_DIR"])
    assert not re.search(rf"{old.name}(?!_)", json.dumps(new)), "the new run's name may begin like the old one's"


@pytest.mark.full
def test_the_parent_is_on_record_and_the_snapshot_whole(spoken: ScriptOutput, first: Path, workplace: Path) -> None:
    stderr = spoken("replay", str(first), env={"MY_TOKEN": "again-a-token"})["stderr"]
    new = run_of(workplace, "speak")
    assert f"primus: note: this run replays {first}" in stderr
    assert metadata(new)["parent"] == {"run_id": first.name, "directory": str(first)}
    assert metadata(first)["parent"] is None
    assert load(str(new)).plan["parent"] == str(first)


@pytest.mark.torch
@pytest.mark.full
@pytest.mark.parametrize("again", [1, 3])
def test_a_replay_can_be_replayed(primus: Run, spoken: ScriptOutput, first: Path, workplace: Path, again: int) -> None:
    env = {"MY_TOKEN": "again-a-token"}
    for _ in range(again):
        spoken("replay", "latest", env={**env, "PLACE": "elsewhere"})
    newest = run_of(workplace, "speak")
    found = checked(primus, newest, env={**env, "SEEN": str(workplace.parent / "seen.json"), "PLACE": "there"})
    assert "plan" in found["equal"]
    assert [row for row in found["differences"] if row["category"] == "config"] == []
    changed = json.loads(primus("runs", "diff", str(first), str(newest), "--json").stdout)["differences"]
    assert [row["name"] for row in changed] == []
    why = {v["name"]: v["why"] for v in load(str(newest)).plan["environment"] if v["origin"] == "replay"}
    assert why["COLOUR"] == "--env: given for this run"


def test_what_was_typed_over_primus_yaml_stands_in_its_replay(spoken: ScriptOutput, workplace: Path) -> None:
    (workplace / "my.env").write_text("COLOUR=green\nPLACE=of-the-file\n")
    (workplace / "primus.yaml").write_text("plugins: [./tasks.py]\ndirect: {env: [./my.env]}\n")
    spoken("direct", "--env", "COLOUR=red", "--", "speak")
    (workplace / "my.env").write_text("COLOUR=green\nPLACE=of-the-file\nLATER=set\n")
    environ = spoken("replay", "latest")["environ"]
    assert (environ["COLOUR"], environ["PLACE"], environ["LATER"]) == ("red", "of-the-file", "set")
    typed = spoken("replay", "latest", "direct", "--env", "COLOUR=green")["environ"]
    assert typed["COLOUR"] == "green"


def test_a_secret_of_a_file_of_variables_is_there_in_the_replay(
    primus: Run, spoken: ScriptOutput, workplace: Path
) -> None:
    (workplace / "my.env").write_text("MY_TOKEN=of-the-file-1\n")
    spoken("direct", "--env", "my.env", "--", "speak")
    refused = primus("replay", "latest", cwd=workplace)
    assert refused.returncode == 3
    assert "fix: export MY_TOKEN=...\n" in refused.stderr
    assert spoken("replay", "latest", "direct", "--env", "my.env")["environ"]["MY_TOKEN"] == "of-the-file-1"
    (workplace / "primus.yaml").write_text("plugins: [./tasks.py]\ndirect: {env: [./my.env]}\n")
    assert spoken("replay", "latest")["environ"]["MY_TOKEN"] == "of-the-file-1"


@pytest.mark.full
def test_the_persons_own_env_options_win(spoken: ScriptOutput, first: Path) -> None:
    options = ("--env", "COLOUR=blue", "--env", "FROM_HOOK=mine", "--env", "PLACE", "--env", "MY_TOKEN=typed-token")
    environ = spoken("replay", str(first), "direct", *options, env={"PLACE": "here"})["environ"]
    assert (environ["COLOUR"], environ["FROM_HOOK"], environ["PLACE"]) == ("blue", "mine", "here")
    assert environ["MY_TOKEN"] == "typed-token"


@pytest.mark.full
def test_scripts_run_from_the_copies_when_the_originals_are_gone(
    spoken: ScriptOutput, first: Path, workplace: Path
) -> None:
    shutil.rmtree(workplace / "hooks")
    (workplace / "fix.py").unlink()
    again = spoken("replay", str(first), env={"MY_TOKEN": "again-a-token"})
    assert again["environ"]["FROM_HOOK"] == "speak in there"
    assert "primus: hook config/hooks/01-say.sh" in again["stderr"]
    assert "primus: patch config/patches/02-fix.py" in again["stderr"]


@pytest.mark.full
def test_python_hooks_run_from_their_copies_too(spoken: ScriptOutput, workplace: Path) -> None:
    (workplace / "primus.yaml").write_text("plugins: [./tasks.py, ./watch.py]\n")
    text = "from primus_core import hookimpl\n@hookimpl\ndef before_launch(run): open('{}', 'a').write(run.task)\n"
    told = workplace.parent / "told"
    (workplace / "watch.py").write_text(text.format(told))
    spoken("direct", "--", "speak")
    (workplace / "watch.py").write_text(text.format(workplace.parent / "told-today"))
    for _ in range(2):
        spoken("replay", "latest")
    assert told.read_text() == "speak" * 3
    assert not (workplace.parent / "told-today").exists()
    copies = run_of(workplace, "speak") / "config/hooks"
    assert [path.name[len("plugin-01-") :] for path in copies.glob("plugin*")] == ["watch.py"]


@pytest.mark.full
def test_hooks_of_today_do_not_run(spoken: ScriptOutput, first: Path, workplace: Path) -> None:
    (workplace / "hooks/speak/02-new.sh").write_text("echo env.NEW=1\n")
    assert "NEW" not in spoken("replay", str(first), env={"MY_TOKEN": "again-a-token"})["environ"]


@pytest.mark.full
def test_a_run_is_found_by_name_by_link_and_as_the_newest(spoken: ScriptOutput, first: Path, workplace: Path) -> None:
    env = {"MY_TOKEN": "again-a-token"}
    for name in (first.name, "speak", "latest", "output/speak", f"output/{first.name}", str(first)):
        assert spoken("replay", name, env=env)["words"] == ["a b", "--flag"]
    assert len([p for p in (workplace / "output").iterdir() if not p.is_symlink()]) == 7


def test_the_number_of_ranks_of_a_replay_is_not_said_to_be_the_persons(
    primus: Run, first: Path, workplace: Path
) -> None:
    for typed, origin in (({}, "replay"), ({"GPUS_PER_NODE": "1"}, "user")):
        shown = primus(
            "replay", first.name, "--dry-run", "--json", cwd=workplace, env={"MY_TOKEN": "again-a-token", **typed}
        )
        [row] = [one for one in json.loads(shown.stdout)["environment"] if one["name"] == "GPUS_PER_NODE"]
        assert row["origin"] == origin


@pytest.mark.parametrize("name", ["latest", "speak", "output/speak"])
def test_a_launch_that_ended_before_it_began_is_not_what_a_name_means(
    primus: Run, first: Path, workplace: Path, name: str
) -> None:
    """It is what the scheduler has just refused: the next command is the same one, mended."""
    refused = first.with_name("speak_2099_01_01_000000")
    refused.mkdir()
    (refused / "metadata.json").write_text('{"status": "failed", "exit_code": 3}')
    (workplace / "output/speak").unlink()
    (workplace / "output/speak").symlink_to(refused.name)
    shown = primus("replay", name, "--dry-run", cwd=workplace, env={"MY_TOKEN": "again-a-token"})
    assert shown.returncode == 0, shown.stderr
    assert f"primus: replays {first.name}: {refused.name} ended before it began, and is passed over\n" in shown.stderr
    assert f"{refused.name} has no complete snapshot" in primus("replay", refused.name, cwd=workplace).stderr


@pytest.mark.full
def test_a_run_directory_that_was_moved_is_replayed_beside_where_it_is(
    spoken: ScriptOutput, first: Path, tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    moved = Path(shutil.move(first, archive))
    environ = spoken("replay", str(moved), env={"MY_TOKEN": "again-a-token"})["environ"]
    assert environ["FROM_HOOK"] == "speak in there"
    assert Path(environ["PRIMUS_RUN_DIR"]).parent == archive
    assert str(first) not in json.dumps(environ)


# What is said, and done, before anything starts.


@pytest.mark.full
def test_a_check_says_what_equals_and_what_differs(primus: Run, first: Path, workplace: Path) -> None:
    before = everything(workplace)
    env = {"MY_TOKEN": "again-a-token", "NEW": "1", "SEEN": str(workplace.parent / "seen.json")}
    result = primus("replay", str(first), "--check", cwd=workplace, env=env)
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert lines[0] == f"primus: replay of {first} (completed)"
    assert lines[1].split()[:2] == ["equal", "plan,"]
    assert "packages (" in lines[1]
    assert "  note      environment: NEW: not set → 1" in lines
    assert not [line for line in lines if line.startswith("  warning")], lines
    assert result.stderr == ""
    behind = primus("replay", str(first), "direct", "--check", cwd=workplace, env=env)
    assert behind.stdout == result.stdout, "the switch is understood behind the runtime, too"
    assert everything(workplace) == before


@pytest.mark.full
def test_a_check_as_json_holds_the_same(primus: Run, first: Path) -> None:
    found = checked(primus, first, env={"NEW": "1"})
    assert (found["code"], found["run"]) == (0, str(first))
    assert row(found, "NEW") == {
        "severity": "note",
        "category": "environment",
        "name": "NEW",
        "before": "",
        "after": "1",
    }


@pytest.mark.full
def test_a_dry_run_shows_the_replay_and_does_nothing(primus: Run, first: Path, workplace: Path) -> None:
    before = everything(workplace)
    seen = workplace.parent / "seen.json"
    env = {"MY_TOKEN": "again-a-token", "NCCL_DEBUG": "INFO", "SEEN": str(seen)}
    shown = primus("replay", str(first), "--dry-run", cwd=workplace, env=env)
    assert shown.returncode == 0, shown.stderr
    assert everything(workplace) == before
    plan = json.loads(primus("replay", str(first), "--dry-run", "--json", cwd=workplace, env=env).stdout)
    assert plan["parent"] == str(first)
    assert "again-a-token" not in shown.stdout
    seen.unlink()
    environ = {**os.environ, **env}
    subprocess.run(["bash", "-e"], input=shown.stdout, text=True, env=environ, cwd="/", check=True, timeout=60)
    pasted = json.loads(seen.read_text())
    assert pasted["environ"]["OMP_NUM_THREADS"] == "3"
    assert "NCCL_DEBUG" not in pasted["environ"]
    assert pasted["words"] == ["a b", "--flag"]


# What it must not pass over.


@pytest.mark.full
def test_a_secret_that_the_run_had_is_asked_for(primus: Run, first: Path, workplace: Path) -> None:
    before = everything(workplace)
    result = primus("replay", str(first), cwd=workplace)
    assert result.returncode == FAILED
    assert "blocking  secret: MY_TOKEN: <secret> → not set: export it" in result.stderr
    assert "MY_TOKEN: <secret> then, here not set: export it" in result.stderr
    assert "HF_TOKEN" not in result.stderr.replace("warning   environment: HF_TOKEN", ""), "no part of the plan"
    assert everything(workplace) == before


@pytest.mark.full
def test_a_secret_that_only_the_person_had_is_missed_aloud(spoken: ScriptOutput, primus: Run, workplace: Path) -> None:
    spoken("direct", "--", "speak", env={"HF_TOKEN": "of-the-hub"})
    result = primus("replay", "speak", "--check", cwd=workplace)
    assert result.returncode == 0
    assert "warning   environment: HF_TOKEN: <secret> → not set" in result.stdout


@pytest.mark.full
def test_a_secret_inside_a_value_is_asked_for_with_it(spoken: ScriptOutput, primus: Run, workplace: Path) -> None:
    env = {"PASS_WORD_TOKEN": "a-long-secret"}
    spoken("direct", "--env", "STORE=store:a-long-secret", "--", "speak", env=env)
    run = run_of(workplace, "speak")
    assert "secret: STORE" in primus("replay", str(run), cwd=workplace).stderr
    assert spoken("replay", str(run), env={"STORE": "store:now"})["environ"]["STORE"] == "store:now"


@pytest.mark.full
def test_a_secret_on_the_command_line_cannot_come_back(spoken: ScriptOutput, primus: Run, workplace: Path) -> None:
    spoken("direct", "--", "speak", "a-long-secret", env={"PASS_WORD_TOKEN": "a-long-secret"})
    result = primus("replay", "speak", cwd=workplace)
    assert result.returncode == FAILED
    assert "secret: the worker's arguments" in result.stderr


@pytest.mark.full
def test_a_secret_in_a_script_cannot_come_back(spoken: ScriptOutput, primus: Run, workplace: Path) -> None:
    (workplace / "hooks/speak/02.sh").write_text("echo a-long-secret > /dev/null\n")
    spoken("direct", "--", "speak", env={"PASS_WORD_TOKEN": "a-long-secret"})
    result = primus("replay", "speak", cwd=workplace)
    assert result.returncode == FAILED
    assert "secret: hook config/hooks/02-02.sh" in result.stderr


@pytest.mark.full
def test_another_gpu_model_blocks_and_force_overrides(primus: Run, first: Path, tmp_path: Path) -> None:
    on(first, "MI300X")
    other = machine(tmp_path / "other", machines.amd("MI355X"))
    found = checked(primus, first, "--assume-host", other)
    assert found["code"] == FAILED
    assert (row(found, "gpu_model")["severity"], row(found, "gpu_model")["after"]) == ("blocking", "MI355X")
    before = everything(first.parent)
    env = {"MY_TOKEN": "again-a-token"}
    refused = primus("replay", str(first), "--dry-run", "--assume-host", other, env=env)
    assert refused.returncode == FAILED
    assert "gpu_model: MI300X then, here MI355X" in refused.stderr
    assert "--force" in refused.stderr
    assert everything(first.parent) == before
    forced = primus("replay", str(first), "--dry-run", "--force", "--assume-host", other, env=env)
    assert forced.returncode == 0, forced.stderr


@pytest.mark.full
def test_the_same_gpu_model_is_the_same_run(primus: Run, first: Path, tmp_path: Path) -> None:
    on(first, "MI300X")
    found = checked(primus, first, "--assume-host", machine(tmp_path / "same", machines.amd("MI300X")))
    assert found["code"] == 0
    assert {row["severity"] for row in found["differences"]} <= {"note", "warning"}


@pytest.mark.parametrize(("used", "severity"), [(8, "blocking"), (4, "note")])
@pytest.mark.full
def test_fewer_devices_than_the_run_used_block(
    primus: Run, first: Path, tmp_path: Path, used: int, severity: str
) -> None:
    on(first, "MI300X", used=used)
    half = machine(tmp_path / "half", machines.amd("MI300X", gpus=4))
    found = checked(primus, first, "--assume-host", half)
    assert row(found, "physical_gpus")["severity"] == severity
    assert found["code"] == (FAILED if severity == "blocking" else 0)


@pytest.mark.full
def test_gpus_taken_apart_otherwise_are_seen(primus: Run, first: Path, tmp_path: Path) -> None:
    on(first, "MI300X")
    parts = machine(tmp_path / "cpx", machines.amd("MI300X", parts=8, memory="NPS4"))
    assert row(checked(primus, first, "--assume-host", parts), "devices")["after"] == "64"


@pytest.mark.full
def test_a_run_on_a_gpu_is_refused_where_there_is_none(primus: Run, first: Path, tmp_path: Path) -> None:
    on(first, "MI300X")
    assert (
        row(checked(primus, first, "--assume-host", machine(tmp_path / "none")), "gpu_model")["severity"] == "blocking"
    )


@pytest.mark.full
def test_another_version_of_a_package_is_a_warning_and_goes_on(spoken: ScriptOutput, first: Path) -> None:
    text = (first / "env/packages.txt").read_text()
    rewritten(first, {"env/packages.txt": re.sub(r"^pluggy==.*$", "pluggy==0.9", text, flags=re.M)})
    again = spoken("replay", str(first), env={"MY_TOKEN": "again-a-token"})
    assert re.search(r"  warning   packages: pluggy: 0\.9 → \d", again["stderr"])


@pytest.mark.full
def test_another_state_of_the_repository_is_a_warning(spoken: ScriptOutput, primus: Run, workplace: Path) -> None:
    git(workplace, "init", "--quiet")
    (workplace / ".gitignore").write_text("output\n__pycache__\n")
    commit(workplace)
    spoken("direct", "--", "speak")
    run = run_of(workplace, "speak")
    words = ("replay", str(run), "--check")
    assert "code" in primus(*words, cwd=workplace, env={"SEEN": "x"}).stdout.split("\n")[1]
    (workplace / "notes.txt").write_text("x\n")
    dirty = primus(*words, cwd=workplace)
    assert re.search(r"warning   code: uncommitted changes: none → [0-9a-f]{12} notes\.txt", dirty.stdout)
    commit(workplace)
    later = primus(*words, cwd=workplace)
    assert "warning   code: commit: " in later.stdout
    assert later.returncode == 0


EVIL = "\x1b]0;owned\x07\x1b[2J\u202e"


@pytest.mark.parametrize("words", [("--check",), ("--dry-run",), ()])
@pytest.mark.full
def test_what_a_snapshot_says_cannot_write_to_the_terminal(primus: Run, first: Path, words: tuple[str, ...]) -> None:
    run = first.rename(first.with_name(f"evil\x1b[2J_{first.name}"))
    (run / "metadata.json").write_text(json.dumps({**metadata(run), "status": EVIL}))
    plan = json.loads((run / "plan.json").read_text())
    plan["requires"] = [{"kind": "file", "name": f"/nowhere/{EVIL}", "fix": EVIL}]
    rewritten(run, {"env/packages.txt": f"{EVIL}==1{EVIL}\n", "plan.json": json.dumps({**plan, "gpu_model": EVIL})})
    told = primus("replay", str(run), *words, env={"MY_TOKEN": "again-a-token"})
    assert told.returncode == FAILED or words == ("--dry-run",), told.stderr
    assert "\\x1b]0;owned\\x07\\x1b[2J\\u202e" in told.stdout + told.stderr
    assert not {"\x1b", "\x07", "\u202e"} & {*told.stdout, *told.stderr}


@pytest.mark.full
def test_metadata_of_another_hand_are_no_bug_of_ours(primus: Run, first: Path) -> None:
    (first / "metadata.json").write_text(json.dumps({**metadata(first), "last_step": 3, "last_loss": None}))
    assert primus("replay", str(first), "--check", env={"MY_TOKEN": "x-second-token"}).stderr == ""


@pytest.mark.full
def test_a_missing_file_of_tasks_blocks(primus: Run, first: Path, workplace: Path) -> None:
    (workplace / "tasks.py").unlink()
    result = primus("replay", str(first), env={"MY_TOKEN": "again-a-token"})
    assert result.returncode == FAILED
    assert f"file: {workplace}/tasks.py" in result.stderr


@pytest.mark.full
def test_a_script_that_the_snapshot_lacks_blocks(primus: Run, first: Path) -> None:
    manifest = json.loads((first / "snapshot.json").read_text())
    del manifest["files"]["config/hooks/01-say.sh"]
    (first / "snapshot.json").write_text(json.dumps(manifest))
    (first / "config/hooks/01-say.sh").unlink()
    found = checked(primus, first)
    assert (found["code"], row(found, "hook config/hooks/01-say.sh")["severity"]) == (FAILED, "blocking")


def _delete(run: Path) -> str:
    (run / "code/diff.patch").unlink()
    return "code/diff.patch is missing"


def _flip(run: Path) -> str:
    path = run / "config/hooks/01-say.sh"
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)
    return "config/hooks/01-say.sh is damaged"


def _other_snapshot(run: Path) -> str:
    data = json.loads((run / "snapshot.json").read_text())
    (run / "snapshot.json").write_text(json.dumps({**data, "schema": 99}))
    return "snapshot schema 99 is not 1"


def _other_plan(run: Path) -> str:
    plan = json.loads((run / "plan.json").read_text())
    rewritten(run, {"plan.json": json.dumps({**plan, "schema": 99})})
    return "the plan has schema 99"


def _no_plan(run: Path) -> str:
    rewritten(run, {"plan.json": json.dumps({"schema": 2, "distributed": {}})})
    return "this is not a plan"


def _no_manifest(run: Path) -> str:
    (run / "snapshot.json").unlink()
    (run / "metadata.json").write_text(json.dumps({**metadata(run), "status": "preparing", "pid": 0}))
    return "has no complete snapshot"


@pytest.mark.full
@pytest.mark.parametrize("damage", [_delete, _flip, _other_snapshot, _other_plan, _no_plan, _no_manifest])
@pytest.mark.parametrize("words", [(), ("--force",), ("--check",), ("--dry-run", "--force")])
def test_a_damaged_snapshot_is_never_replayed(
    primus: Run, first: Path, damage: Callable[[Path], str], words: tuple[str, ...]
) -> None:
    says = damage(first)
    before = everything(first.parent)
    result = primus("replay", str(first), *words, env={"MY_TOKEN": "again-a-token"})
    assert result.returncode == FAILED
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert everything(first.parent) == before


@pytest.mark.parametrize(
    ("typed", "what", "fix"),
    [
        (
            ("latest", "--check", "--", "direct", "--single"),
            "before 'direct'",
            "primus replay latest --check direct --single",
        ),
        (("latest", "--", "train", "pretrain"), "before 'train'", "primus replay latest"),
        (("latest", "--"), "at its end", "primus replay latest"),
    ],
)
def test_dashes_before_the_runtime_of_a_replay_are_refused_with_the_command_to_type(
    primus: Run, tmp_path: Path, typed: tuple[str, ...], what: str, fix: str
) -> None:
    refused = primus("replay", *typed, cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr == (
        f"primus: error: a replay takes no `--` {what}\n"
        "  why: its task is in the snapshot, and its runtimes follow the run and its options\n"
        f"  fix: {fix}\n"
    )
