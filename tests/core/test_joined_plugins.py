"""Plugins of others: packages by entry point, one dropped-in file, and a broken one that breaks nothing else."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from tests.conftest import ROOT, Run

from primus_core.contracts.launcher import Launcher
from primus_core.contracts.scheduler import Scheduler
from primus_core.installed import joined
from primus_core.plugins import contracts

EXPERIMENT = """\
exp_name: down
modules:
  pre_trainer:
    framework: countdown
    overrides:
      steps: 4
"""


@pytest.mark.whole
@pytest.mark.full
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
@pytest.mark.full
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


@pytest.mark.full
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
    assert re.search(r"bad\.py +broken: bad\.py:3: unknown hook 'on_stepp'", primus("plugins", cwd=project).stdout)
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
    assert re.search(r"pip install (\S+ )*\S*packages/primus ", result.stderr)


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
    "scheduler": ("primus.schedulers acme-grid = twin:GRID", ("direct", "--", "behave", "exit", "0")),
    "command": ("primus.commands replay = twin:REPLAY", ("replay", "latest")),
}


@pytest.mark.parametrize("kind", TWINS)
def test_a_second_one_of_a_name_takes_nobodys_place(primus: Run, project: Path, acme_grid: str, kind: str) -> None:
    entry, words = TWINS[kind]
    site = joining(project / "site", "twin", entry)
    result = primus(*words, env={"PYTHONPATH": f"{site}:{acme_grid}"}, cwd=project)
    assert result.returncode == 2
    assert f"two {kind}s are called '" in result.stderr
    first = "acme-grid 1.4.0" if kind == "scheduler" else "primus-core 0.1.0"
    assert f"why: twin 1.0 and {first}\n" in result.stderr or f"why: {first} and twin 1.0\n" in result.stderr


@pytest.mark.parametrize("words", [("direct", "--", "behave", "exit", "0"), ("--debug", "direct", "--help")])
def test_a_command_takes_no_runtimes_place(primus: Run, project: Path, words: tuple[str, ...]) -> None:
    site = joining(project / "site", "twin", "primus.commands direct = twin")
    result = primus(*words, env={"PYTHONPATH": site}, cwd=project)
    assert result.returncode == 2
    assert "'direct' is a command and a runtime" in result.stderr
    assert "why: twin 1.0 has the command, primus-core 0.1.0 the runtime\n" in result.stderr


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
    assert re.search(r"fix: correct \S+/odd\.py, line 1\n", result.stderr)


def test_actions_of_config_that_cannot_be_joined_break_no_others(primus: Run, project: Path) -> None:
    texts = {
        "raises": "raise RuntimeError('no licence')\n",
        "number": "EXAMPLES = 5\ndef add(actions): ...\ndef complete(parsers): ...\n",
        "adding": "EXAMPLES = ''\ndef add(actions): actions.nothing()\ndef complete(parsers): ...\n",
    }
    for name, text in texts.items():
        site = joining(project / "site", name, f"primus.config {name} = {name}", text)
    whole = primus("config", "system", "--json", env={"PYTHONPATH": site}, cwd=project)
    assert json.loads(whole.stdout), whole.stderr
    assert re.findall("^primus: note: .*?'(.*?)'.*?: (.*)$", whole.stderr, re.M) == [
        ("adding", "AttributeError: '_Subcommands' object has no attribute 'nothing'"),
        ("number", "`EXAMPLES` must be text, and is 5 (docs/plugins.md)"),
        ("raises", "RuntimeError: no licence"),
    ]
    refused = primus("config", "unheard", env={"PYTHONPATH": site}, cwd=project)
    assert (refused.returncode, "the actions 'adding'" in refused.stderr) == (3, True), refused.stderr


def test_a_plugin_that_exits_at_import_is_broken_and_what_it_prints_is_no_answer(primus: Run, project: Path) -> None:
    site = joining(project / "site", "quits", "primus.tasks quits = quits:QUITS", "import sys\nsys.exit(0)\n")
    site = joining(project / "site", "talks", "primus.tasks talks = talks:TALKS", "print('hello')\nTALKS = None\n")
    listed = primus("plugins", "--json", env={"PYTHONPATH": site}, cwd=project)
    rows = {row["name"]: row["status"] for row in json.loads(listed.stdout)}
    assert rows["quits"] == "broken: ImportError: it calls sys.exit(0)"
    assert "hello" in listed.stderr
    refused = primus("direct", "--dry-run", "--", "quits", env={"PYTHONPATH": site}, cwd=project)
    assert (refused.returncode, "it calls sys.exit(0)" in refused.stderr) == (3, True), refused.stderr
    joining(project / "site", "stops", "primus.commands stops = stops", "raise KeyboardInterrupt\n")
    stopped = primus("stops", env={"PYTHONPATH": site}, cwd=project)
    assert (stopped.returncode, stopped.stderr) == (130, "primus: interrupted\n")


@pytest.mark.parametrize("member", ["add_arguments", "epilog", "wrap"])
@pytest.mark.parametrize("value", ["None", "5"])
def test_a_runtime_with_a_member_of_the_wrong_type_is_broken(
    primus: Run, project: Path, member: str, value: str
) -> None:
    text = "class Odd:\n    name, epilog, holds = 'odd', '', ('direct',)\n    def add_arguments(self, parser): ...\n"
    text += f"    def wrap(self, call): ...\n    {member} = {value}\nODD = Odd()\n"
    site = joining(project / "site", "odd", "primus.runtimes odd = odd:ODD", text)
    refused = primus("odd", "--", "behave", "exit", "0", env={"PYTHONPATH": site}, cwd=project)
    assert refused.returncode == 3
    assert re.search(f"why: `{member}` must be .*, and is {value} ", refused.stderr), refused.stderr


def test_a_folder_of_data_that_is_missing_is_listed_as_broken(primus: Run, project: Path) -> None:
    for kind in ("models", "signatures", "profiles", "recipes", "defaults", "after_failure"):
        site = joining(project / "site", f"lost-{kind}", f"primus.{kind} lost = nowhere.{kind}")
        (project / "nowhere" / kind).mkdir(parents=True)
    rows = json.loads(primus("plugins", "--json", env={"PYTHONPATH": site}, cwd=project).stdout)
    lost = {row["kind"]: row["status"] for row in rows if row["name"] == "lost"}
    assert len(lost) == 6
    assert [kind for kind, status in lost.items() if not status.startswith("broken: ")] == []


@pytest.mark.full
def test_an_entry_point_without_a_name_and_metadata_that_are_no_file_break_nothing(primus: Run, project: Path) -> None:
    site = joining(project / "site", "odd", "primus.tasks  = odd:ODD", "ODD = None\n")
    (project / "site/folder-1.0.dist-info/entry_points.txt").mkdir(parents=True)
    (project / "site/pipe-1.0.dist-info").mkdir()
    os.mkfifo(project / "site/pipe-1.0.dist-info/entry_points.txt")
    env = {"PYTHONPATH": site}
    assert re.search(r"\(no name\) +odd 1\.0 +broken", primus("plugins", env=env, cwd=project).stdout)
    for words in (("--help",), ("direct", "--single", "--", "behave", "exit", "0"), ("__complete", "1", "primus", "")):
        done = primus(*words, env=env, cwd=project)
        assert done.returncode == 0, done.stderr
    assert primus("direct", "--", "behav", env=env, cwd=project).returncode == 2


PAGE = (ROOT / "docs/plugins.md").read_text(encoding="utf-8")


def of_page(first: str, last: str) -> str:
    """The code of the page from one line to another."""
    found = re.search(rf"^    {re.escape(first)}\n.*?^    {re.escape(last)}$", PAGE, re.M | re.S)
    assert found, first
    return re.sub("^ {4}", "", found[0], flags=re.M) + "\n"


def of_protocol(*protocols: type) -> set[str]:
    names = {name for protocol in protocols for name in (*vars(protocol), *protocol.__annotations__)}
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize(
    ("kind", "protocols"),
    [
        ("schedulers", (Scheduler,)),
        ("launchers", (Launcher,)),
        ("tasks", (contracts.Task,)),
        ("commands", (contracts.Command,)),
        ("config", (contracts.ConfigActions,)),
        ("runtimes", (contracts.Runtime,)),
    ],
)
def test_what_is_checked_of_a_plugin_is_its_interface(kind: str, protocols: tuple[type, ...]) -> None:
    assert set(joined.lacking(f"primus.{kind}", object())) == of_protocol(*protocols)


def test_an_outer_runtime_lacks_what_an_outer_runtime_has() -> None:
    class Outer:
        wrap = None

    assert {*joined.lacking("primus.runtimes", Outer()), "wrap"} == of_protocol(contracts.OuterRuntime)


def test_the_page_names_all_members_of_a_scheduler() -> None:
    table = PAGE.partition("## Add a scheduler")[2].partition("All of these are required")[0]
    rows = re.findall(r"^\| (`.*?`) \|", table, re.M)
    assert sorted(re.findall("`(\\w+)`", " ".join(rows))) == sorted(of_protocol(Scheduler))


def test_the_scheduler_and_the_launcher_of_the_page_load_and_place_a_node(primus: Run, project: Path) -> None:
    scheduler = of_page("from primus_core.contracts.scheduler import Printed", "ACME_GRID = AcmeGrid()")
    site = joining(project / "site", "grid", "primus.schedulers acme-grid = grid:ACME_GRID", scheduler)
    fork = "import re\n" + of_page("class Fork:", '            yield Signalled(int(rank), int(number), "")')
    joining(project / "site", "forks", "primus.launchers acme-fork = forks:FORK", f"{fork}FORK = Fork()\n")
    listed = primus("plugins", env={"PYTHONPATH": site}, cwd=project).stdout
    assert re.search("acme-grid +grid 1.0 +ok$", listed, re.M), listed
    assert re.search("acme-fork +forks 1.0 +ok$", listed, re.M), listed
    node = {"ACME_JOB": "7", "ACME_NODE": "1", "ACME_NODES": "4", "ACME_HOSTS": "n1,n2,n3,n4"}
    words = ("direct", "--dry-run", "--", "behave", "exit", "0")
    shown = primus(*words, env={"PYTHONPATH": site, **node}, cwd=project)
    assert shown.returncode == 0, shown.stderr
    assert re.search("NODE_RANK +1\\b", shown.stdout), shown.stdout
    assert re.search("MASTER_ADDR +n1\\b", shown.stdout), shown.stdout


@pytest.mark.full
def test_a_scheduler_that_lacks_members_is_ignored_with_a_note(primus: Run, project: Path) -> None:
    text = "class Odd:\n    name = title = 'odd'\n    variables = {}\n    def started(self, environ): return True\nODD = Odd()\n"
    site = joining(project / "site", "odd", "primus.schedulers odd = odd:ODD", text)
    env = {"PYTHONPATH": site}
    ran = primus("direct", "--single", "--", "behave", "exit", "0", env=env, cwd=project)
    assert ran.returncode == 0, ran.stderr
    assert (
        "the scheduler 'odd' of odd 1.0 cannot be loaded and is ignored: it lacks launch, logs, families" in ran.stderr
    )
    assert re.search("odd +odd 1.0 +broken: it lacks launch, logs", primus("plugins", env=env, cwd=project).stdout)


TASK = "class Odd:\n    name, epilog = 'odd', ''\n    def add_arguments(self, parser): ...\n    def plan(self, call): ...\n"
FIELD = f"""
from primus_core.plugins.contracts import TaskPlan
{TASK[:-4]} return TaskPlan(place=None, worker=None)
    scope = 'run'
ODD = Odd()
"""
INCOMPLETE = {
    "task": ("primus.tasks odd = odd:ODD", f"{TASK}ODD = Odd()\n", "it lacks scope"),
    "class": ("primus.tasks odd = odd:Odd", TASK, "Odd is a class, and must be an instance"),
    "runtime": ("primus.runtimes odd = odd:ODD", "ODD = object()\n", "it lacks name, epilog, add_arguments, distr"),
    "command": ("primus.commands odd = odd", "def parser(): ...\n", "it lacks run"),
    "result": (
        "primus.tasks odd = odd:ODD",
        f"{TASK}    scope = 'run'\nODD = Odd()\n",
        "must return TaskPlan, and returned",
    ),
    "scope": ("primus.tasks odd = odd:ODD", f"{TASK}    scope = 'ranks'\nODD = Odd()\n", "must be rank, node or run"),
    "field": (
        "primus.tasks odd = odd:ODD",
        FIELD,
        "`place` of the TaskPlan that it returned must be RunPlace, and is N",
    ),
    "code": ("primus.commands odd = odd", "def parser(): ...\ndef run(words, layer): return 'x'\n", "must return int"),
}


LAUNCHER = """
from primus_core.plan.plan import Worker
from primus_core.plugins.contracts import TaskPlan
from primus_core.runtimes.direct.single import Single

class Task:
    name, epilog, scope = 'odd', '', 'rank'
    def add_arguments(self, parser): ...
    def plan(self, call): return TaskPlan(call.place('output', 'odd'), Worker('no_such_module', (), 'odd'))

class Odd(Single):
    name, reports = 'odd', True
"""


@pytest.mark.parametrize("kind", INCOMPLETE)
@pytest.mark.full
def test_a_plugin_that_lacks_a_member_is_named_where_it_is_needed(primus: Run, project: Path, kind: str) -> None:
    entry, text, why = INCOMPLETE[kind]
    env = {"PYTHONPATH": joining(project / "site", "odd", entry, text)}
    words = {"runtimes": ("odd", "--", "behave"), "commands": ("odd",)}.get(
        entry.split()[0][7:], ("direct", "--", "odd")
    )
    result = primus(*words, env=env, cwd=project)
    assert result.returncode == 3, result.stderr
    assert "'odd'" in result.stderr
    assert why in result.stderr
    assert primus("direct", "--single", "--", "behave", "exit", "0", env=env, cwd=project).returncode == 0


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        (
            "def signalled(self, output): return None",
            "note: the launcher 'odd' does not tell which ranks a signal ended",
        ),
        (
            "reports = property(lambda self: 1 / 0)",
            "error: odd 1.0 is broken\n  why: `Odd.<lambda>` raised ZeroDivisionError",
        ),
    ],
)
def test_a_launcher_that_breaks_once_the_ranks_have_ended_leaves_no_run_without_an_end(
    primus: Run, project: Path, broken: str, error: str
) -> None:
    text = f"{LAUNCHER}    {broken}\nLAUNCH = Odd()\nTASK = Task()\n"
    site = joining(project / "site", "odd", "primus.launchers odd = odd:LAUNCH", text)
    entries = project / "site/odd-1.0.dist-info/entry_points.txt"
    entries.write_text(f"{entries.read_text()}\n[primus.tasks]\nodd = odd:TASK\n")
    result = primus("direct", "--", "odd", env={"PYTHONPATH": site}, cwd=project)
    assert (result.returncode, error in result.stderr) == (1 if "note" in error else 3, True), result.stderr
    [run] = (project / "output").glob("odd_*")
    assert json.loads((run / "metadata.json").read_text())["status"] == "failed"


def test_a_command_that_returns_nothing_ends_well(primus: Run, project: Path) -> None:
    text = "def parser(): ...\ndef run(words, layer): print('done')\n"
    site = joining(project / "site", "odd", "primus.commands odd = odd", text)
    result = primus("odd", env={"PYTHONPATH": site}, cwd=project)
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr


def test_a_bug_behind_a_call_of_ours_is_the_packages(primus: Run, project: Path) -> None:
    text = "from primus_core.request.arguments import parse_segment\ndef parser(): ...\n"
    text += "def run(words, layer): parse_segment(None, words)\n"
    site = joining(project / "site", "odd", "primus.commands odd = odd", text)
    result = primus("odd", env={"PYTHONPATH": site}, cwd=project)
    assert (result.returncode, result.stderr.splitlines()) == (3, [
        "primus: error: odd 1.0 is broken",
        "  why: `run` raised AttributeError: 'NoneType' object has no attribute 'mistakes'",
        f"       in {project}/site/odd.py, line 3",
        "  fix: report this to those who maintain it; `primus --debug ...` shows the traceback",
    ])  # fmt: skip
    assert "Traceback" in primus("--debug", "odd", env={"PYTHONPATH": site}, cwd=project).stderr


RAISING = {
    "task": ("primus.tasks odd = odd:ODD", TASK.replace(": ...\n", ": 1 / 0\n"), "    scope = 'run'\n"),
    "runtime": (
        "primus.runtimes odd = odd:ODD",
        TASK.replace(": ...\n", ": 1 / 0\n"),
        "    holds = ()\n    def distributed(self, *call): ...\n",
    ),
}


@pytest.mark.parametrize("kind", RAISING)
@pytest.mark.parametrize("words", [("--help",), ()])
def test_a_plugin_that_raises_is_an_error_that_names_it(
    primus: Run, project: Path, kind: str, words: tuple[str, ...]
) -> None:
    entry, text, more = RAISING[kind]
    env = {"PYTHONPATH": joining(project / "site", "odd", entry, f"{text}{more}ODD = Odd()\n")}
    asked = ("direct", "--", "odd", *words) if kind == "task" else ("odd", *words, "--", "behave")
    result = primus(*asked, env=env, cwd=project)
    assert result.returncode == 3, result.stderr
    assert "error: odd 1.0 is broken\n  why: `Odd.add_arguments` raised ZeroDivisionError" in result.stderr


@pytest.mark.full
def test_a_node_whose_scheduler_cannot_be_imported_does_not_run_as_if_it_were_alone(primus: Run, project: Path) -> None:
    site = joining(project / "site", "odd", "primus.schedulers odd = odd:ODD", "import liboddity\n")
    words = ("direct", "--single", "--", "behave", "exit", "0")
    assert primus(*words, env={"PYTHONPATH": site}, cwd=project).returncode == 0, "by hand, it is on this node alone"
    inside = {"PYTHONPATH": site, "PRIMUS_OUTER": "odd", "PRIMUS_RUN_DIR": str(project / "output/x")}
    result = primus(*words, env=inside, cwd=project)
    assert result.returncode == 3
    assert "the scheduler 'odd' of odd 1.0 cannot be loaded" in result.stderr
