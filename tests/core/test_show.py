"""A plan as a script, tried in a real bash."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from primus_core.plan.plan import SCHEMA, Distributed, Plan, PlannedFile, Requirement, RunPlace, Step, Variable
from primus_core.plan.show import script

PRINTER = f"""\
#!{sys.executable}
import json, os, sys
json.dump([sys.argv[1:], dict(os.environ), os.getcwd()], sys.stdout)
"""

# What shells trip over, and anything else that can be an argument.
nasty = st.sampled_from(
    [
        "a b",
        "$HOME;ls",
        "*",
        "'",
        '"',
        "\\",
        "",
        "-n",
        "--",
        "a=b",
        "!x",
        "~",
        "#",
        "`id`",
        "$(id)",
        "x\ny",
        "\t",
        "é",
        "&",
    ]
) | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
names = st.from_regex(r"X_[A-Z0-9_]{1,5}", fullmatch=True)


@pytest.fixture
def printer(tmp_path: Path) -> str:
    """A program that prints its arguments, environment and folder, at a path with a blank in it."""
    path = tmp_path / "a folder" / "print it"
    path.parent.mkdir()
    path.write_text(PRINTER)
    path.chmod(0o755)
    return str(path)


def planned(
    *steps: Step,
    environment: tuple[Variable, ...] = (),
    files: tuple[PlannedFile, ...] = (),
    notes: tuple[str, ...] = (),
    directory: str = "/nowhere/run",
    requires: tuple[Requirement, ...] = (),
) -> Plan:
    """A plan with these parts."""
    return Plan(
        schema=SCHEMA,
        primus_version="0.1.0",
        command=("primus",),
        runtime="direct",
        task="train",
        place=RunPlace("run", directory, ""),
        distributed=Distributed(gpus_per_node=2),
        environment=environment,
        steps=steps,
        files=files,
        notes=notes,
        requires=requires,
    )


def bash(text: str, **environ: str) -> str:
    """What a bash, given the text as if it were pasted, prints."""
    result = subprocess.run(
        ["bash", "--norc"],
        input=text,
        text=True,
        capture_output=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", **environ},
    )
    assert result.stderr == ""
    return result.stdout


@pytest.mark.full
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(nasty, max_size=4), environ=st.dictionaries(names, nasty, max_size=3))
def test_the_printed_step_gives_the_same_arguments_environment_and_folder(
    printer: str, words: list[str], environ: dict[str, str]
) -> None:
    folder = str(Path(printer).parent)
    variables = tuple(Variable(name, value, "--env", "it\nsays so") for name, value in environ.items())
    plan = planned(Step("worker", (printer, *words), folder, ranks=2), environment=variables, directory=f"{folder}/run")
    argv, seen, cwd = json.loads(bash(script(plan), X_OLD="kept"))
    assert argv == words
    assert {name: seen[name] for name in environ} == environ
    assert seen["X_OLD"] == environ.get("X_OLD", "kept")
    assert cwd == folder


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"]), max_size=30))
def test_the_printed_files_are_the_planned_ones(tmp_path: Path, text: str) -> None:
    run = tmp_path / "a run"
    plan = planned(directory=str(run), files=(PlannedFile("config/it's.json", text),))
    assert bash(script(plan)) == ""
    written = (run / "config/it's.json").read_text()
    assert written == (text if text.endswith("\n") else text + "\n")
    assert (run / "logs").is_dir()


def test_a_file_that_holds_the_end_mark_is_whole_all_the_same(tmp_path: Path) -> None:
    text = "a\nPRIMUS_END_OF_FILE\necho caught\n"
    plan = planned(directory=str(tmp_path / "run"), files=(PlannedFile("x", text),))
    assert bash(script(plan)) == ""
    assert (tmp_path / "run/x").read_text() == text


def test_no_text_of_a_plan_becomes_a_command(tmp_path: Path) -> None:
    evil = "\necho caught\n"
    plan = planned(
        directory=f"{tmp_path}/run{evil}",
        notes=(f"note{evil}",),
        environment=(Variable("A", evil, evil, evil),),
        requires=(Requirement("module", f"m{evil}", "f"),),
    )
    assert bash(script(plan)) == ""


def test_a_secret_is_shown_by_name_only_and_left_to_the_person(printer: str) -> None:
    plan = planned(
        Step("worker", (printer,), "/"),
        directory=f"{printer}-run",
        environment=(Variable("HF_TOKEN", "hunter22", "--env", secret=True), Variable("A", "1", "--env")),
    )
    shown = script(plan)
    assert "hunter22" not in shown
    assert "# export HF_TOKEN yourself: its value is a secret" in shown
    _, seen, _ = json.loads(bash(shown, HF_TOKEN="mine"))
    assert (seen["HF_TOKEN"], seen["A"]) == ("mine", "1")


def test_the_whole_text_of_a_small_plan() -> None:
    plan = planned(
        Step("prepare", ("python", "-m", "x"), "/w"),
        Step("worker", ("python", "a b"), "/w", ranks=1),
        environment=(Variable("A", "1 2", "user", "because"), Variable("LONG", "x", "base")),
        notes=("no GPU",),
        requires=(Requirement("module", "torch", "pip install torch"),),
        files=(PlannedFile("config/c.json", "{}"),),
    )
    assert (
        script(plan)
        == """\
# primus 0.1.0: train with direct. This is a dry run: nothing was done.
# run        run
# directory  /nowhere/run
# ranks      2 (node 0 of 1, 2 per node, master localhost, port 29500)
# starts     python 'a b'
# note       no GPU
# needs      module torch

# environment
#   A     1 2  (user: because)
#   LONG  x  (base)

# files
mkdir -p /nowhere/run /nowhere/run/config /nowhere/run/logs
cat > /nowhere/run/config/c.json <<'PRIMUS_END_OF_FILE'
{}
PRIMUS_END_OF_FILE
cat > /nowhere/run/metadata.json <<'PRIMUS_END_OF_FILE'
{
 "run_id": "run",
 "status": "unwatched",
 "command": [
  "primus"
 ],
 "task": "train",
 "runtime": "direct",
 "world_size": 2,
 "primus_version": "0.1.0"
}
PRIMUS_END_OF_FILE

# step: prepare
cd /w && env 'A=1 2' LONG=x python -m x

# step: worker, 1 rank
cd /w && env 'A=1 2' LONG=x python 'a b'
"""
    )
