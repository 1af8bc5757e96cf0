"""The command line as a person meets it: real processes, whole outputs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.core.test_direct import metadata, run_of

from primus_core.installed import joined


@pytest.mark.whole
def test_help_lists_runtimes_tasks_and_examples(primus: Run) -> None:
    result = primus("--help")
    assert result.returncode == 0
    assert re.search(r"^  direct +Run on this machine\.$", result.stdout, re.M)
    assert re.search(r"^  replay +Start a saved run again", result.stdout, re.M)
    assert "primus direct -- train pretrain" in result.stdout


_VERBS = [
    "Check",
    "Compare",
    "Explain",
    "Fetch",
    "List",
    "Manage",
    "Measure",
    "Print",
    "Rename",
    "Run",
    "Show",
    "Start",
    "Stop",
    "Train",
    "Trust",
    "Work",
    "Write",
]


def test_every_summary_in_the_help_begins_with_a_verb_and_opens_the_help_of_its_own(primus: Run) -> None:
    rows = re.findall(r"^  ([a-z]+) {2,}(.*)$", primus("--help").stdout, re.M)
    assert {name for name, _ in rows} >= {"direct", "replay", "config"}
    assert [row for row in rows if re.split(r"\W", row[1])[0] not in _VERBS] == []
    for command in ("env", "config", "hooks"):
        assert_each_action_has_a_verb(primus, command)


def assert_each_action_has_a_verb(primus: Run, command: str) -> None:
    """Its line in the help of `command` begins with one, and opens the help of the action."""
    below = re.findall(r"^    ([a-z]+) {2,}(\S.*)$", primus(command, "--help").stdout, re.M)
    assert below
    for name, summary in below:
        assert re.split(r"\W", summary)[0] in _VERBS
        assert summary in " ".join(primus(command, name, "--help").stdout.split())


@pytest.mark.parametrize(
    ("asked", "shown"),
    [(("help", "replay"), ("replay", "--help")), (("help", "direct"), ("direct", "--help")), (("help",), ("--help",))],
)
def test_help_with_a_word_shows_the_help_of_it(primus: Run, asked: tuple[str, ...], shown: tuple[str, ...]) -> None:
    assert primus(*asked).stdout == primus(*shown).stdout != ""


def test_no_arguments_at_all_show_the_help(primus: Run) -> None:
    assert primus().stdout == primus("--help").stdout


def test_the_version_is_the_packages(primus: Run) -> None:
    assert re.fullmatch(r"primus \d+\.\d+\.\d+\n", primus("--version").stdout)
    assert primus("direct", "--version").stdout == primus("--version").stdout


@pytest.mark.parametrize("words", [("--help",), ("env", "show"), ("plugins", "--json")])
def test_a_full_disk_is_no_bug_of_ours(words: tuple[str, ...], clean_environ: dict[str, str]) -> None:
    command = [str(Path(sys.executable).with_name("primus")), *words]
    with open("/dev/full", "w", encoding="utf-8") as full:
        result = subprocess.run(command, env=clean_environ, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (result.returncode, result.stderr.splitlines()[0]) == (3, "primus: error: the output cannot be written")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_a_closed_stream_breaks_no_run(closed: str, clean_environ: dict[str, str], project: Path) -> None:
    primus = Path(sys.executable).with_name("primus")
    command = f"exec {primus} direct --single -- analyze topology {closed}"
    result = subprocess.run(["bash", "-c", command], env=clean_environ, cwd=project, capture_output=True, check=False)
    assert result.returncode == 0, result.stderr
    run = run_of(project, "analyze-topology")
    assert metadata(run)["status"] == "completed"
    assert (run / "logs/rank_0.log").read_text().startswith("rank 0 of 1")


def test_primus_cli_is_the_same_command(clean_environ: dict[str, str]) -> None:
    alias = Path(sys.executable).with_name("primus-cli")
    result = subprocess.run([alias, "--version"], env=clean_environ, text=True, capture_output=True, check=True)
    assert result.stdout.startswith("primus ")


LOADED = "import sys; before = set(sys.modules)\n{}\nprint(*sorted(set(sys.modules) - before))"


def loaded(code: str, environ: dict[str, str], cwd: Path) -> set[str]:
    """The modules that an interpreter loads for `code`."""
    command = [sys.executable, "-c", LOADED.format(code)]
    result = subprocess.run(command, env=environ, cwd=cwd, text=True, capture_output=True, check=True)
    return set(result.stdout.splitlines()[-1].split())


@pytest.mark.whole
def test_help_and_version_import_nothing_but_themselves(clean_environ: dict[str, str], tmp_path: Path) -> None:
    for flag, module in (("--help", "cli.help"), ("--version", "cli.commands")):
        code = f"from primus_core.cli.main import main; main(['{flag}'])"
        needed = {
            "errno",
            "primus_core",
            "primus_core.cli",
            "primus_core.cli.main",
            f"primus_core.{module}",
            "primus_machine",
            "primus_machine.packages",
        }
        if flag == "--help" and not joined.of_group("primus.tasks"):  # it says what to install
            hint = "from primus_core.installed.homes import how_to_install; how_to_install('primus-train')"
            needed |= loaded(hint, clean_environ, tmp_path)
        assert loaded(code, clean_environ, tmp_path) <= needed, flag


@pytest.mark.whole
def test_a_launch_loads_nothing_that_only_its_end_or_an_experiment_needs(
    clean_environ: dict[str, str], tmp_path: Path
) -> None:
    code = "import primus_core.execute.execute, primus_core.planning.planner, primus_core.environment.profiles"
    heavy = {"importlib.metadata", "numpy", "pluggy", "pydantic", "statistics", "structlog", "torch", "yaml"}
    assert not heavy & loaded(code, clean_environ, tmp_path)


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
@pytest.mark.whole
def test_garbage_is_left_alone_while_a_launch_is_planned_and_no_longer(
    options: tuple[str, ...], clean_environ: dict[str, str], project: Path
) -> None:
    code = r"""
import gc, os, sys
running, planning = set(), set()
def watch(event, args):
    if event in ("os.fork", "os.posix_spawn", "subprocess.Popen"):
        running.add(gc.isenabled())
    elif event == "import" and args[0] == "primus_core.planning.planner":
        planning.add(gc.isenabled())
sys.addaudithook(watch)
from primus_core.cli.main import main
code = main(sys.argv[1:])
print(code, planning, running or "nothing", gc.isenabled(), file=sys.stderr)
"""
    words = ["direct", *options, "--single", "--", "analyze", "topology"]
    command = [sys.executable, "-c", code, *words]
    result = subprocess.run(command, env=clean_environ, cwd=project, text=True, capture_output=True, check=True)
    assert result.stderr.splitlines()[-1] == f"0 {{False}} {'nothing' if options else {True}} True"


@pytest.mark.whole
def test_a_plan_reads_the_metadata_of_each_package_once(clean_environ: dict[str, str], project: Path) -> None:
    code = r"""
import sys
opened = []
sys.addaudithook(lambda event, args: event == "open" and opened.append(args[0]))
from primus_core.cli.main import main
assert main(["direct", "--dry-run", "--assume-host", sys.argv[1], "--", "analyze", "topology"]) == 0
print(*(path for path in opened if str(path).endswith("entry_points.txt")), sep="\n", file=sys.stderr)
"""
    gpus = (
        Path(__file__).parents[1] / "machine/captures" / "mi210-8.tar.gz"
    )  # they ask for profiles, beside tasks and runtimes
    command = [sys.executable, "-c", code, str(gpus)]
    result = subprocess.run(command, env=clean_environ, cwd=project, text=True, capture_output=True, check=True)
    read = result.stderr.splitlines()
    assert any("primus_core" in path for path in read)
    assert len(set(read)) == len(read)


@pytest.mark.parametrize("name", ["primus", "primus-cli"])
def test_what_lies_beside_the_command_is_no_module(name: str, clean_environ: dict[str, str], tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "packages/primus-core/bin" / name
    (tmp_path / name).write_text(script.read_text())
    (tmp_path / "primus_core.py").write_text("raise SystemExit('the wrong one')\n")
    for flags in ((), ("-P",)):
        command = [sys.executable, *flags, str(tmp_path / name), "--version"]
        result = subprocess.run(command, env=clean_environ, text=True, capture_output=True, check=False)
        assert (result.returncode, result.stdout[:7]) == (0, "primus "), result.stderr


@pytest.mark.parametrize("words", ["--help", "--version", "plugins", "direct --help"])
def test_a_closed_reader_is_no_traceback(clean_environ: dict[str, str], words: str) -> None:
    command = Path(sys.executable).with_name("primus")
    environ = {name: value for name, value in clean_environ.items() if name != "PYTHONUNBUFFERED"}
    reader, writer = os.pipe()
    os.close(reader)
    # The exit code as a shell has it. (`exit`: otherwise bash would become the command.)
    result = subprocess.run(["bash", "-c", f"{command} {words}; exit"], env=environ, stdout=writer,
                            stderr=subprocess.PIPE, text=True, check=False)  # fmt: skip
    os.close(writer)
    assert (result.returncode, result.stderr) == (141, "")


def test_an_outer_layer_is_told_the_protocol_and_which_schedulers_are_missing(primus: Run) -> None:
    assert primus("__protocol").stdout == "1\n"
    assert primus("__protocol", "herd", "flock").stdout == "1 without flock without herd\n"


def complete(primus: Run, *words: str, cwd: Path | None = None) -> list[str]:
    """What the shell is offered for the last of `words`."""
    return primus("__complete", str(len(words)), "primus", *words, cwd=cwd).stdout.split()


def test_every_shell_has_a_script_and_others_are_refused(primus: Run) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "primus" in primus("completion", shell).stdout
    refused = primus("completion", "tcsh")
    assert refused.returncode == 2
    assert "'bash', 'fish', 'zsh'" in refused.stderr


def test_help_says_in_the_words_of_the_field_what_an_option_does(primus: Run) -> None:
    wanted = {
        ("--help",): "Start a saved run again",
        ("direct", "--help"): "give up after N consecutive restarts without progress (default: 0)",
    }
    for words, said in wanted.items():
        assert said in " ".join(primus(*words).stdout.split()), words
