"""The runtime `direct`, with real processes: what is started, what is logged, what comes back."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run


def run_of(project: Path, name: str = "behave") -> Path:
    """The newest run directory."""
    return (project / "output" / name).resolve()


def metadata(run: Path) -> dict[str, Any]:
    """Its metadata."""
    return dict(json.loads((run / "metadata.json").read_text(encoding="utf-8")))


def test_a_run_leaves_plan_metadata_logs_and_events(primus: Run, project: Path) -> None:
    result = primus("direct", "--", "analyze", "topology", "a b", cwd=project)
    assert (result.returncode, result.stdout) == (0, "rank 0 of 1 words ['a b']\n")
    run = run_of(project, "analyze-topology")
    assert metadata(run)["status"] == "completed"
    assert (run / "logs/rank_0.log").read_text().splitlines() == ["rank 0 of 1 words ['a b']", "to stderr"]
    events = [json.loads(line) for line in (run / "logs/events.jsonl").read_text().splitlines()]
    assert [e["event"] for e in events] == ["run_started", "step_started", "step_ended", "run_ended"]
    assert json.loads((run / "plan.json").read_text())["task"] == "analyze topology"


def test_a_dry_run_changes_nothing_on_disk(primus: Run, project: Path) -> None:
    before = sorted(str(p) for p in project.rglob("*"))
    assert primus("direct", "--dry-run", "--", "behave", "exit", "3", cwd=project).returncode == 0
    assert sorted(str(p) for p in project.rglob("*")) == before


def test_a_dry_run_as_json_is_the_same_plan(primus: Run, project: Path) -> None:
    from primus_core.replay.saved_plan import load

    text = primus("direct", "--dry-run", "--json", "--", "behave", "talk", "2", cwd=project).stdout
    plan = load(text)
    assert plan.steps[0].argv[-2:] == ("talk", "2")
    assert plan.to_dict() == json.loads(text)


def test_the_printed_command_pasted_into_a_shell_does_the_same(primus: Run, project: Path) -> None:
    words = ["a b", "$HOME;ls", "*", "'\"", "", "é\\n"]
    shown = primus("direct", "--dry-run", "--", "analyze", "topology", *words, cwd=project).stdout
    pasted = subprocess.run(["bash"], input=shown, text=True, capture_output=True, check=True, cwd="/")
    assert pasted.stdout == f"rank 0 of 1 words {words}\n"
    line = next(line for line in shown.splitlines() if "primus_core.programs.rank" in line)
    assert shlex.split(line)[-len(words) :] == words


def test_a_last_line_without_an_end_is_shown_and_logged(primus: Run, project: Path) -> None:
    (project / "my_tasks.py").write_text(
        "import os\nfrom primus_core import register_task\n@register_task('cut')\n"
        "def cut(call):\n    os.write(1, b'the last wor')\n    os._exit(0)\n"
    )
    result = primus("direct", "--single", "--", "cut", cwd=project)
    assert (result.returncode, result.stdout) == (0, "the last wor")
    assert (run_of(project, "cut") / "logs/rank_0.log").read_text() == "the last wor"


@pytest.mark.parametrize(("words", "code"), [(("exit", "7"), 7), (("signal", "9"), 137), (("signal", "15"), 143)])
def test_the_tasks_own_exit_code_comes_back(primus: Run, project: Path, words: tuple[str, ...], code: int) -> None:
    result = primus("direct", "--", "behave", *words, cwd=project)
    assert result.returncode == code
    assert metadata(run_of(project))["exit_code"] == code


def test_a_failure_ends_with_the_traceback_and_one_block(primus: Run, project: Path) -> None:
    result = primus("direct", "--", "behave", "raise", "out", "of", "luck", cwd=project)
    assert result.returncode == 1
    tail = result.stderr[result.stderr.rindex("Traceback") :]
    assert "ValueError: out of luck" in tail
    assert "runpy" not in tail
    assert "first failure rank 0 on node 0" in tail
    assert "logs/rank_0.log" in tail
    assert metadata(run_of(project))["first_failure"]["what"] == "ValueError: out of luck"


def test_env_options_reach_the_worker_and_win(primus: Run, project: Path) -> None:
    (project / "more.env").write_text("# a comment\nexport COLOUR='dark red'\nSHAPE=round\n")
    words = ["direct", "--env", "more.env", "--env", "SHAPE=square", "--env", "PASSED", "--", "behave", "environment"]
    out = primus(*words, cwd=project, env={"COLOUR": "blue", "PASSED": "on"}).stdout
    for pair in ("'COLOUR': 'dark red'", "'SHAPE': 'square'", "'PASSED': 'on'"):
        assert pair in out


def test_the_console_text_also_goes_to_the_log_file(primus: Run, project: Path) -> None:
    primus("direct", "--log-file", "all.log", "--", "analyze", "topology", cwd=project)
    text = (project / "all.log").read_text()
    assert "rank 0 of 1" in text
    assert "primus: completed" in text


def test_single_tells_the_process_that_it_is_alone(primus: Run, project: Path) -> None:
    out = primus("direct", "--single", "--", "ranks", "end", "0", cwd=project, env={"GPUS_PER_NODE": "4"})
    assert out.stdout == "rank 0 is here\n"


def test_a_lone_process_that_a_signal_ended_is_a_rank_and_no_launcher(primus: Run, project: Path) -> None:
    result = primus("direct", "--single", "--", "behave", "signal", "9", cwd=project)
    assert result.returncode == 137
    assert "first failure rank 0 on node 0" in result.stderr
    assert "ended by SIGKILL (out of memory?" in result.stderr
    assert f"{run_of(project).relative_to(project)}/logs/rank_0.log" in result.stderr
    assert metadata(run_of(project))["first_failure"]["rank"] == 0


def test_a_long_output_arrives_whole_and_in_order(primus: Run, project: Path) -> None:
    result = primus("direct", "--", "behave", "talk", "30000", cwd=project)
    assert [line.split()[1] for line in result.stdout.splitlines()] == [str(n) for n in range(30000)]
    assert (run_of(project) / "logs/rank_0.log").read_text() == result.stdout


def test_what_a_script_prints_is_on_stderr_and_in_the_log(primus: Run, project: Path) -> None:
    (project / "hooks").mkdir()
    (project / "hooks/01.sh").write_text("echo to stdout\necho to stderr >&2\n")
    result = primus("direct", "--", "behave", "exit", "0", cwd=project)
    assert (result.returncode, result.stdout) == (0, "")
    assert {"to stdout", "to stderr"} <= {*result.stderr.splitlines()}
    assert {"to stdout", "to stderr"} <= {*(run_of(project) / "logs/launch.log").read_text().splitlines()}


def test_numa_binds_to_the_cpus_of_a_node(primus: Run, project: Path) -> None:
    shown = primus("direct", "--dry-run", "--json", "--numa", "--", "behave", "exit", "0", cwd=project)
    variables = {v["name"]: v["value"] for v in json.loads(shown.stdout)["environment"]}
    if Path("/sys/devices/system/node/node0").exists():
        assert variables["PRIMUS_NUMA_CPUS"] == Path("/sys/devices/system/node/node0/cpulist").read_text().strip()
    else:
        assert "PRIMUS_NUMA_CPUS" not in variables


@pytest.mark.full
def test_two_runs_in_one_second_get_directories_of_their_own(primus: Run, project: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: primus("direct", "--", "behave", "exit", "0", cwd=project), range(4)))
    assert [r.returncode for r in results] == [0] * 4
    assert len([p for p in (project / "output").iterdir() if not p.is_symlink()]) == 4


def test_a_workspace_that_cannot_be_made_is_exit_3(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "output").write_text("a file where the workspace should be\n")
    (tmp_path / "primus.yaml").write_text("plugins: [./t.py]\n")
    (tmp_path / "t.py").write_text("from primus_core import register_task\n@register_task('hop')\ndef hop(call): ...\n")
    result = primus("direct", "--", "hop", cwd=tmp_path)
    assert result.returncode == 3
    assert "cannot be written" in result.stderr


def test_a_log_file_that_cannot_be_made_is_refused(primus: Run, project: Path) -> None:
    result = primus("direct", "--log-file", "nowhere/x.log", "--", "behave", "exit", "0", cwd=project)
    assert result.returncode == 2
    assert "--log-file nowhere/x.log" in result.stderr


@pytest.mark.full
def test_a_disk_that_takes_no_more_stops_logging_but_not_the_run(clean_environ: dict[str, str], project: Path) -> None:
    command = ["bash", "-c", 'ulimit -f 100; exec "$@"', "-", str(Path(sys.executable).with_name("primus"))]
    result = subprocess.run([*command, "direct", "--", "behave", "talk", "20000"], env=clean_environ, cwd=project,
                            text=True, capture_output=True, check=False, timeout=120)  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == 20000
    assert "bytes of log text could not be written" in result.stderr
    assert (run_of(project) / "logs/rank_0.log").stat().st_size == 100 * 1024


KEEPER = r"""
import os, signal, subprocess, sys
from primus_machine.processes import become_subreaper, descendants
asked = []
sys.addaudithook(lambda event, args: event == "open" and str(args[0]).startswith("/proc/") and asked.append(args[0]))
become_subreaper()
assert descendants(os.getpid()) == []
assert not asked
child = subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE)
orphan = int(child.stdout.readline())
assert descendants(os.getpid()) == [child.pid, orphan]
child.kill()
child.wait()
assert descendants(os.getpid()) == [orphan]
assert asked
os.kill(orphan, signal.SIGKILL)
os.waitpid(orphan, 0)
asked.clear()
assert descendants(os.getpid()) == []
assert not asked
"""


def test_orphans_are_found_and_a_process_without_children_asks_no_other(clean_environ: dict[str, str]) -> None:
    command = [sys.executable, "-c", KEEPER]
    result = subprocess.run(command, env=clean_environ, text=True, capture_output=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
