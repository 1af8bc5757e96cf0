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


def joining(folder: Path, name: str, entry: str, text: str = "") -> str:
    """A package of that name with one entry point, and a module of the same name; the folder that it is in."""
    (folder / f"{name}-1.0.dist-info").mkdir(parents=True)
    group, _, target = entry.partition(" ")
    (folder / f"{name}-1.0.dist-info/entry_points.txt").write_text(f"[{group}]\n{target}\n")
    (folder / f"{name}.py").write_text(text)
    return str(folder)


TWINS = {
    "launcher": ("primus.launchers single = twin:SINGLE", ("direct", "--single", "--", "behave", "exit", "0")),
    "scheduler": ("primus.schedulers slurm = twin:SLURM", ("direct", "--", "behave", "exit", "0")),
    "command": ("primus.commands runs = twin:RUNS", ("runs", "list")),
}


@pytest.mark.parametrize("kind", TWINS)
def test_a_second_one_of_a_name_takes_nobodys_place(primus: Run, project: Path, kind: str) -> None:
    entry, words = TWINS[kind]
    result = primus(*words, env={"PYTHONPATH": joining(project / "site", "twin", entry)}, cwd=project)
    assert result.returncode == 2
    assert f"two packages have a {kind} '" in result.stderr
    assert re.search(r"why: (primus-core 0\.1\.0 and )?twin 1\.0( and primus-core 0\.1\.0)?\n", result.stderr)


BROKEN = {
    "launcher": ("primus.launchers odd = odd:ODD", ("direct", "--", "odd")),
    "command": ("primus.commands odd = odd:ODD", ("odd",)),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_one_that_cannot_be_imported_is_named_with_its_package(primus: Run, project: Path, kind: str) -> None:
    entry, words = BROKEN[kind]
    task = "from primus_core.plan.plan import Worker\nfrom primus_core.plugins.contracts import TaskPlan\n"
    task += "class Odd:\n    name, scope, epilog = 'odd', 'run', ''\n    def add_arguments(self, parser): ...\n"
    task += "    def plan(self, call): return TaskPlan(call.place('output', 'odd'), Worker('odd', (), 'odd'))\n"
    joining(project / "site", "tasks", "primus.tasks odd = tasks:ODD", f"{task}ODD = Odd()\n")
    site = joining(project / "site", "odd", entry, "import liboddity\n")
    result = primus(*words, env={"PYTHONPATH": site}, cwd=project)
    assert result.returncode == 3
    assert f"the {kind} 'odd' of odd 1.0 cannot be loaded\n  why: ModuleNotFoundError: No module named" in result.stderr


def test_commands_are_suggested_for_the_scheduler_that_a_site_brings(primus: Run, project: Path) -> None:
    text = "from primus_core.runtimes.slurm.scheduler import Slurm\nclass Zebra(Slurm):\n    name, launch = 'zebra', 'herd {nodes}'\n"
    site = joining(project / "site", "zebra", "primus.schedulers zebra = zebra:ZEBRA", f"{text}ZEBRA = Zebra()\n")
    env = {"PYTHONPATH": site, "NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "localhost"}
    result = primus("direct", "--max-restarts", "1", "--", "behave", "exit", "0", cwd=project, env=env)
    assert "fix: start all nodes by one command: primus herd 2 -- direct --max-restarts 1 -- ..." in result.stderr


def test_a_node_whose_scheduler_cannot_be_imported_does_not_run_as_if_it_were_alone(primus: Run, project: Path) -> None:
    site = joining(project / "site", "odd", "primus.schedulers odd = odd:ODD", "import liboddity\n")
    words = ("direct", "--single", "--", "behave", "exit", "0")
    assert primus(*words, env={"PYTHONPATH": site}, cwd=project).returncode == 0, "by hand, it is on this node alone"
    inside = {"PYTHONPATH": site, "PRIMUS_OUTER": "odd", "PRIMUS_RUN_DIR": str(project / "output/x")}
    result = primus(*words, env=inside, cwd=project)
    assert result.returncode == 3
    assert "the scheduler 'odd' of odd 1.0 cannot be loaded" in result.stderr
