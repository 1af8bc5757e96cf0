"""Plugins of others: packages by entry point, one dropped-in file, and a broken one that breaks nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.conftest import Run

EXPERIMENT = """\
exp_name: down
modules:
  pre_trainer:
    framework: countdown
    overrides:
      steps: 4
"""


@pytest.mark.whole
def test_a_task_of_another_package_is_a_command_with_help(primus: Run, third_party: str) -> None:
    env = {"PYTHONPATH": third_party}
    assert re.search(r"^  greet +Greet from the worker", primus("--help", env=env).stdout, re.M)
    assert primus("direct", "--", "greet", "--whom", "acme", env=env).stdout == "hello acme\n"
    refused = primus("direct", "--", "greet", "--whom", "nobody", env=env)
    assert refused.returncode == 2
    assert "acme" in refused.stderr


@pytest.mark.parametrize("words", [("--dry-run",), ()])
def test_a_file_of_tasks_is_run_without_leaving_bytecode_beside_it(
    primus: Run, project: Path, words: tuple[str, ...]
) -> None:
    before = sorted(path.name for path in project.iterdir())
    result = primus("direct", *words, "--", "behave", "exit", "0", cwd=project)
    assert result.returncode == 0, result.stderr
    assert sorted(path.name for path in project.iterdir() if path.name != "output") == before


@pytest.mark.whole
def test_a_broken_plugin_is_one_line_and_breaks_nothing_else(primus: Run, third_party: str) -> None:
    env = {"PYTHONPATH": third_party}
    result = primus("plugins", env=env)
    assert result.returncode == 0
    [line] = [line for line in result.stdout.splitlines() if "crumble" in line]
    assert re.search(r"broken-primus 0\.0\.1 +broken: RuntimeError: libcrumble\.so\.7 is not here$", line)
    assert primus("--help", env=env).returncode == 0
    assert primus("direct", "--", "greet", env=env).returncode == 0
    asked = primus("direct", "--", "crumble", env=env)
    assert asked.returncode == 3
    assert "broken-primus 0.0.1" in asked.stderr


def test_a_dropped_in_file_is_a_command_at_once(primus: Run, project: Path) -> None:
    assert re.search(r"^  analyze topology +Say where it runs", primus("--help", cwd=project).stdout, re.M)
    assert primus("direct", "--", "analyze", "topology", cwd=project).returncode == 0
    half = primus("direct", "--", "analyze", cwd=project)
    assert half.returncode == 2
    assert "analyze topology" in half.stderr


def test_a_dropped_in_file_that_is_no_python_breaks_nothing_else(primus: Run, project: Path) -> None:
    (project / "primus.yaml").write_text("plugins: [my_tasks.py, bad.py]\n")
    (project / "bad.py").write_text("def broken(:\n")
    assert primus("direct", "--", "analyze", "topology", cwd=project).returncode == 0
    assert re.search(r"bad\.py +broken: .*syntax", primus("plugins", cwd=project).stdout)


def test_a_misspelt_hook_is_listed_with_its_line(primus: Run, project: Path) -> None:
    (project / "primus.yaml").write_text("plugins: [my_tasks.py, bad.py]\n")
    (project / "bad.py").write_text("from primus_core import hookimpl\n@hookimpl\ndef on_stepp(run): ...\n")
    assert re.search(r"bad\.py +broken: bad\.py:3: there is no hook 'on_stepp'", primus("plugins", cwd=project).stdout)
    rows = json.loads(primus("plugins", "--json", cwd=project).stdout)
    assert {row["status"].partition(":")[0] for row in rows} == {"ok", "broken"}


def test_a_dropped_in_file_that_raises_is_a_message_for_its_own_task_only(primus: Run, project: Path) -> None:
    (project / "primus.yaml").write_text("plugins: [my_tasks.py, raises.py]\n")
    (project / "raises.py").write_text(
        "from primus_core import register_task\n@register_task('later')\ndef later(call): ...\nraise OSError('no disk')\n"
    )
    assert primus("direct", "--", "analyze", "topology", cwd=project).returncode == 0
    result = primus("direct", "--", "later", cwd=project)
    assert result.returncode == 3
    assert "OSError: no disk" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_file_that_needs_a_module_of_amds_primus_says_where_it_is(primus: Run, project: Path) -> None:
    (project / "primus.yaml").write_text("plugins: [old.py]\n")
    (project / "old.py").write_text(
        "from primus.cli.gone import register_subcommand\n@register_subcommand('old')\ndef old(args, rest): ...\n"
    )
    result = primus("direct", "--", "old", cwd=project)
    assert result.returncode == 3
    assert "No module named 'primus" in result.stderr
    assert "pip install packages/primus" in result.stderr


@pytest.mark.whole
def test_two_packages_with_one_name_are_an_error_that_names_both(primus: Run, third_party: str, tmp_path: Path) -> None:
    twin = tmp_path / "site" / "twin-9.9.dist-info"
    twin.mkdir(parents=True)
    (twin / "entry_points.txt").write_text("[primus.tasks]\ngreet = twin:GREET\n")
    result = primus("direct", "--", "greet", env={"PYTHONPATH": f"{third_party}:{twin.parent}"})
    assert result.returncode == 2
    assert "acme-primus 2.1.0" in result.stderr
    assert "twin 9.9" in result.stderr
