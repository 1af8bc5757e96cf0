"""The Python Hook API with real processes and small plugins: what they are told, and what they cannot do to a run."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run, wait_until

from primus_core.hooks import files as hook_files
from primus_core.hooks import specs as hookspecs
from primus_core.hooks.api import HookProcesses
from primus_core.hooks.data import HOOKS, FailureInfo, Result, RunInfo
from primus_core.plan.plan import HookPlugin
from primus_machine.errors import ConfigError
from primus_machine.files.follow import Follower
from primus_machine.secrets.masks import Mask

RUN = RunInfo("exp_1", "/runs/exp_1", "train", "torchtitan", "llama", ("primus", "direct"), 2, 1, 4, 8, "node1",
              {"steps": 3})  # fmt: skip
RESULT = Result("completed", 0, 12.5, 10, 1.25)

# What most plugins below begin with: they write down what they are told, in the order in which they are told it.
TELLING = """\
import json, os, sys, time
from primus_core import hookimpl
def tell(*words):
    with open(__file__ + ".told", "a") as file:
        file.write(json.dumps(words) + "\\n")
"""

Start = Callable[..., HookProcesses]


class Stage:
    """A folder for the plugins of a test, and what the supervisor said."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder, self.environ = folder, environ
        self.said: list[str] = []
        self.made: list[HookProcesses] = []
        self.log = folder / "hooks.log"

    def file(self, name: str, text: str) -> HookPlugin:
        (self.folder / name).write_text(TELLING + textwrap.dedent(text), encoding="utf-8")
        return HookPlugin(name, str(self.folder / name), is_file=True)

    def start(
        self, *plugins: HookPlugin, timeout_s: float = 20, mask: Mask | None = None, **more: Any
    ) -> HookProcesses:
        made = HookProcesses(plugins, RUN, timeout_s=timeout_s, environ=self.environ, say=self.said.append,
                             log=str(self.log), mask=mask or Mask(()), **more)  # fmt: skip
        self.made.append(made)
        return made

    def told(self, name: str) -> list[Any]:
        path = self.folder / f"{name}.told"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def logged(self) -> str:
        return self.log.read_text(encoding="utf-8") if self.log.exists() else ""


@pytest.fixture
def stage(tmp_path: Path, clean_environ: dict[str, str]) -> Iterator[Stage]:
    """Plugins to write and start; whatever a test leaves running is ended."""
    made = Stage(tmp_path, clean_environ)
    yield made
    for processes in made.made:
        processes.close()


def until(condition: Callable[[], object], hooks: HookProcesses, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        hooks.poll()
        time.sleep(0.02)


def test_the_table_of_hooks_is_that_of_the_specifications() -> None:
    specs = {n: f for n, f in inspect.getmembers(hookspecs, inspect.isfunction) if hasattr(f, "primus_spec")}
    assert {name: tuple(inspect.signature(spec).parameters) for name, spec in specs.items()} == dict(HOOKS)
    assert all(inspect.getdoc(spec) for spec in specs.values())


def test_every_hook_is_told_what_happened_in_order(stage: Stage) -> None:
    plugin = stage.file(
        "all.py",
        """
        @hookimpl
        def before_launch(run): tell("before", run.run_id, run.command, run.config, run.world_size)
        @hookimpl
        def after_launch(): tell("launched")
        @hookimpl
        def on_step(metrics, run): tell("step", metrics["step"], run.node_rank)
        @hookimpl(specname="on_checkpoint")
        def saved(path, step): tell("saved", step, path)
        @hookimpl
        def on_failure(failure): tell("failure", failure.rank, failure.what, type(failure).__name__)
        @hookimpl
        def after_run(run, result): tell("after", result.status, result.last_loss)
        """,
    )
    hooks = stage.start(plugin)
    assert hooks.call("before_launch") is None
    hooks.post("after_launch")
    hooks.post("on_step", metrics={"step": 1, "loss": 2.0})
    hooks.post("on_checkpoint", step=1, path="/runs/ckpt")
    hooks.call("on_failure", failure=FailureInfo(3, 1, "ValueError: no", "Traceback", "node1"))
    hooks.call("after_run", result=RESULT)
    hooks.close()
    assert stage.told("all.py") == [
        ["before", "exp_1", ["primus", "direct"], {"steps": 3}, 8],
        ["launched"],
        ["step", 1, 1],
        ["saved", 1, "/runs/ckpt"],
        ["failure", 3, "ValueError: no", "FailureInfo"],
        ["after", "completed", 1.25],
    ]
    assert stage.said == []


def test_pluggys_order_holds_within_a_plugin(stage: Stage) -> None:
    plugin = stage.file(
        "order.py",
        """
        @hookimpl(specname="before_launch")
        def first_written(run): tell("plain")
        @hookimpl(specname="before_launch", tryfirst=True)
        def early(run): tell("early")
        @hookimpl(specname="before_launch", wrapper=True)
        def around(run):
            tell("around")
            yield
            tell("behind")
        """,
    )
    stage.start(plugin).call("before_launch")
    assert stage.told("order.py") == [["around"], ["early"], ["plain"], ["behind"]]


def test_no_event_is_lost_in_normal_use(stage: Stage) -> None:
    plugin = stage.file(
        "steps.py", "@hookimpl\ndef on_step(metrics): tell(metrics['step'])\n@hookimpl\ndef after_run(): ...\n"
    )
    hooks = stage.start(plugin)
    hooks.ready()
    for step in range(3000):
        hooks.post("on_step", metrics={"step": step, "text": "x" * 300})
    hooks.call("after_run", result=RESULT)
    hooks.close()
    assert stage.told("steps.py") == [[step] for step in range(3000)]
    assert stage.said == []


@pytest.mark.full
def test_posting_never_waits_and_what_was_dropped_is_told(stage: Stage) -> None:
    plugin = stage.file("slow.py", "@hookimpl\ndef on_step(metrics): time.sleep(600)\n")
    hooks = stage.start(plugin, timeout_s=600)
    hooks.ready()
    for step in range(5000):
        hooks.post("on_step", metrics={"step": step, "text": "x" * 100})
    hooks.close()
    late, missed = stage.said
    assert late == "primus: note: the hooks of slow.py did not end in 5 s and were ended\n"
    assert missed == "primus: note: the hooks of slow.py were too slow: they missed 5000 events\n"


def test_a_hook_may_stop_the_launch_with_a_reason(stage: Stage) -> None:
    plugin = stage.file(
        "stop.py",
        """
        from primus_core.hooks.specs import StopRun
        @hookimpl
        def before_launch(run): raise StopRun("the queue is closed")
        @hookimpl
        def after_run(run): tell("after")
        """,
    )
    other = stage.file("other.py", "@hookimpl\ndef before_launch(run): tell('before')\n")
    hooks = stage.start(plugin, other)
    assert hooks.call("before_launch") == ("the queue is closed (before_launch of stop.py)", 1)
    assert hooks.call("after_run", result=RESULT) is None
    assert stage.told("stop.py") == [["after"]]
    assert stage.told("other.py") == [["before"]]


def test_an_exception_is_named_once_with_its_plugin_and_the_run_goes_on(stage: Stage) -> None:
    bad = stage.file(
        "bad.py", "@hookimpl\ndef on_step(metrics): raise KeyError('loss')\n@hookimpl\ndef after_run(): sys.exit(3)\n"
    )
    good = stage.file("good.py", "@hookimpl\ndef on_step(metrics): tell(metrics['step'])\n")
    hooks = stage.start(bad, good)
    for step in range(3):
        hooks.post("on_step", metrics={"step": step})
    assert hooks.call("after_run", result=RESULT) is None
    hooks.close()
    assert stage.told("good.py") == [[0], [1], [2]]
    assert stage.said == [
        "primus: hook on_step of bad.py failed: KeyError: 'loss'\n",
        "primus: hook after_run of bad.py failed: SystemExit: 3\n",
        "primus: note: hook on_step of bad.py failed 3 times with KeyError\n",
    ]
    assert "[bad.py] KeyError: 'loss'" in stage.logged()
    assert "raise KeyError('loss')" in stage.logged()


@pytest.mark.full
def test_a_hook_that_hangs_is_cut_off_with_its_limit_and_where_it_hung(stage: Stage) -> None:
    hangs = stage.file("hangs.py", "@hookimpl\ndef on_step(metrics):\n    tell('hang')\n    time.sleep(600)\n")
    good = stage.file("good.py", "@hookimpl\ndef on_step(metrics): tell(metrics['step'])\n")
    hooks = stage.start(hangs, good, timeout_s=2)
    hooks.ready()
    for step in (1, 2):
        hooks.post("on_step", metrics={"step": step})
    until(lambda: stage.said, hooks)
    assert stage.said == [
        "primus: hook on_step of hangs.py took longer than 2 s and was killed; it gets no further events\n"
    ]
    hooks.post("on_step", metrics={"step": 3})
    hooks.close()
    assert stage.told("hangs.py") == [["hang"]]
    assert stage.told("good.py") == [[1], [2], [3]]
    assert re.search(r"\[hangs.py\].*hangs.py\", line \d+ in on_step", stage.logged())


def test_a_launch_waits_no_longer_than_the_limit_for_all_plugins(stage: Stage) -> None:
    plugins = [stage.file(f"hang{i}.py", "@hookimpl\ndef before_launch(): time.sleep(600)\n") for i in range(3)]
    hooks = stage.start(*plugins, timeout_s=1)
    hooks.ready()
    assert hooks.call("before_launch") is None
    assert sorted(stage.said) == [
        f"primus: hook before_launch of hang{i}.py took longer than 1 s and was killed; it gets no further events\n"
        for i in range(3)
    ]


def test_a_plugin_that_is_too_far_behind_at_the_end_is_cut_off(stage: Stage) -> None:
    slow = "@hookimpl\ndef on_step(metrics): time.sleep(0.2)\n@hookimpl\ndef after_run(): ...\n"
    hooks = stage.start(stage.file("slow.py", slow), timeout_s=0.5)
    hooks.ready()
    for step in range(50):
        hooks.post("on_step", metrics={"step": step})
    hooks.call("after_run", result=RESULT)
    assert re.fullmatch(
        r"primus: slow.py was \d\d events behind at after_run, did not catch up in 0.5 s and was killed; .*\n",
        stage.said[0],
    )


@pytest.mark.full
def test_a_signal_ends_the_wait(stage: Stage) -> None:
    plugin = stage.file("hangs.py", "@hookimpl\ndef before_launch(): time.sleep(600)\n")
    signals: list[float] = []
    hooks = stage.start(
        plugin, timeout_s=600, interruptions=lambda: sum(time.monotonic() > moment for moment in signals)
    )
    hooks.ready()
    signals.append(time.monotonic() + 0.5)
    assert hooks.call("before_launch") is None


@pytest.mark.parametrize(
    ("end", "said"),
    [("os.kill(os.getpid(), 11)", "by SIGSEGV in on_step"), ("os._exit(7)", "with exit code 7 in on_step")],
)
def test_a_crash_of_a_hook_harms_only_itself(end: str, said: str, stage: Stage) -> None:
    hooks = stage.start(stage.file("crash.py", f"@hookimpl\ndef on_step(metrics): {end}\n"))
    hooks.ready()
    hooks.post("on_step", metrics={"step": 1})
    until(lambda: stage.said, hooks)
    assert stage.said == [f"primus: the hooks of crash.py ended {said}; they get no further events\n"]
    hooks.post("on_step", metrics={"step": 2})
    assert hooks.call("after_run", result=RESULT) is None


WRONG = {
    "a misspelt hook": (
        "@hookimpl\ndef on_stpe(run): ...\n",
        r":7: unknown hook 'on_stpe'",
        "did you mean 'on_step'",
    ),
    "a misspelt argument": (
        "@hookimpl\ndef on_step(run, metrix): ...\n",
        r":7: the hook 'on_step' has the argument 'metrix', which on_step does not provide",
        "did you mean 'metrics'",
    ),
    "an argument of another hook": (
        "@hookimpl\ndef after_run(metrics): ...\n",
        "has the argument 'metrics'",
        "provides: run, result",
    ),
    "a misspelt specname": ("@hookimpl(specname='on_stop')\ndef f(): ...\n", "unknown hook 'on_stop'", "'on_step'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_misspelt_hook_of_a_file_is_refused_by_reading_it_and_again_by_loading_it(case: str, stage: Stage) -> None:
    text, what, fix = WRONG[case]
    plugin = stage.file("wrong.py", text)
    with pytest.raises(ConfigError, match=what) as read:
        hook_files.check(hook_files.declared(ast.parse(Path(plugin.target).read_text())), "wrong.py")
    with pytest.raises(ConfigError, match=what.lstrip(":7")) as loaded:
        stage.start(plugin).ready()
    assert fix in str(read.value)
    assert fix in str(loaded.value)
    assert "wrong.py:" in str(loaded.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("class A:\n    @hookimpl\n    def on_step(self): ...\n", "inside a class or a function"),
        ("@hookimpl\nasync def on_step(): ...\n", "would never be awaited"),
    ],
)
def test_a_hook_that_nothing_could_call_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        hook_files.check(hook_files.declared(ast.parse(text)), "a.py")


def test_hooks_are_found_in_the_text_below_conditions_too() -> None:
    text = """
import primus_core.hooks.specs as h
try:
    @h.hookimpl(trylast=True)
    def on_step(run, metrics, unit="s"): ...
except ImportError: ...
def after_run(result): ...
"""
    [hook] = hook_files.declared(ast.parse(text))
    assert hook == hook_files.Declared("on_step", "on_step", ("run", "metrics"), 5)
    hook_files.check([hook], "a.py")


def test_a_file_that_raises_is_refused_with_its_line(stage: Stage) -> None:
    with pytest.raises(ConfigError, match=r"raises.py cannot be used: it cannot be loaded") as caught:
        stage.start(stage.file("raises.py", "import no_such_module\n")).ready()
    assert "No module named 'no_such_module' (" in str(caught.value)
    assert "raises.py:6)" in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_package_that_is_broken_is_a_note_and_the_others_go_on(stage: Stage) -> None:
    good = stage.file("good.py", "@hookimpl\ndef before_launch(run): tell('before')\n")
    hooks = stage.start(HookPlugin("sad 1.0", "sad_module"), HookPlugin("empty 1.0", "json"), good)
    assert hooks.call("before_launch") is None
    hooks.close()
    assert stage.told("good.py") == [["before"]]
    assert [line[: line.index("it ") + 3] for line in stage.said] == [
        "primus: note: the hooks of sad 1.0 are skipped: it ",
        "primus: note: the hooks of empty 1.0 are skipped: it ",
    ]
    assert "No module named 'sad_module'" in stage.said[0]
    assert "it defines no hook" in stage.said[1]


def test_what_hooks_print_goes_to_the_log_without_secrets_and_never_into_the_protocol(stage: Stage) -> None:
    plugin = stage.file(
        "talks.py",
        """
        import subprocess
        print("hello at import")
        @hookimpl
        def before_launch(run):
            print('{"id": 1, "stop": "no"}')
            print("the key is open-sesame", file=sys.stderr)
            subprocess.run(["echo", "child says open-sesame"])
            assert sys.stdin.read() == ""
            raise OSError("open-sesame was wrong")
        """,
    )
    hooks = stage.start(plugin, mask=Mask(("open-sesame",)))
    assert hooks.call("before_launch") is None
    hooks.close()
    assert "[talks.py] hello at import\n" in stage.logged()
    assert "[talks.py] child says <secret>\n" in stage.logged()
    assert "open-sesame" not in stage.logged() + "".join(stage.said)
    assert stage.said == ["primus: hook before_launch of talks.py failed: OSError: <secret> was wrong\n"]


def test_output_waits_for_a_log_folder_that_is_made_later(stage: Stage) -> None:
    stage.log = stage.folder / "run" / "hooks.log"
    hooks = stage.start(stage.file("early.py", "print('early')\n@hookimpl\ndef before_launch(): print('late')\n"))
    hooks.ready()
    stage.log.parent.mkdir()
    hooks.call("before_launch")
    hooks.close()
    assert stage.logged() == "[early.py] early\n[early.py] late\n"


@pytest.mark.full
def test_what_a_hook_started_ends_with_it(stage: Stage) -> None:
    text = """
    import subprocess
    @hookimpl
    def before_launch(): tell(subprocess.Popen(["sleep", "600"], start_new_session=True).pid)
    @hookimpl
    def on_step(): time.sleep(600)
    """
    ends, cut = stage.file("ends.py", text), stage.file("cut.py", text)
    hooks = stage.start(ends)
    hooks.call("before_launch")
    hooks.close()
    hung = stage.start(cut, timeout_s=2)
    hung.ready()
    hung.call("before_launch")
    hung.post("on_step", metrics={"step": 1})
    until(lambda: any("was killed" in text for text in stage.said), hung)
    for [pid] in (*stage.told("ends.py"), *stage.told("cut.py")):
        assert not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2]


def test_the_end_runs_what_a_plugin_left_for_its_exit_and_is_quick(stage: Stage) -> None:
    text = "import atexit\natexit.register(tell, 'bye')\n@hookimpl\ndef on_step(): ...\n"
    hooks = stage.start(stage.file("bye.py", text))
    hooks.ready()
    hooks.close()
    assert stage.told("bye.py") == [["bye"]]
    assert stage.said == [], "it was not waited for in vain"


SUPERVISOR = """
import sys, time
from primus_core.hooks.api import HookProcesses
from primus_core.plan.plan import HookPlugin
from primus_core.hooks.data import RunInfo
from primus_machine.secrets.masks import Mask
import os
run = RunInfo("r", "/r", "train", "", "", (), 1, 0, 1, 1, "h", {})
hooks = HookProcesses([HookPlugin("a.py", sys.argv[1], True)], run, timeout_s=100, environ=dict(os.environ),
                      say=print, log=sys.argv[1] + ".log", mask=Mask(()))
hooks.ready()
hooks.post("on_step", metrics={"step": 1})
print(*hooks.pids(), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("busy", [True, False])
def test_when_the_supervisor_is_killed_its_hook_processes_end(busy: bool, stage: Stage) -> None:
    text = f"""
    import subprocess
    @hookimpl
    def on_step():
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        tell("step")
        time.sleep({600 if busy else 0})
    """
    plugin = stage.file("a.py", text)
    command = [sys.executable, "-c", SUPERVISOR, plugin.target]
    with subprocess.Popen(command, env=stage.environ, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout
        pid = int(supervisor.stdout.readline())
        wait_until(lambda: stage.told("a.py"))
        supervisor.send_signal(signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}").exists())  # what it started: the fixture that watches for left-overs


@pytest.mark.whole
@pytest.mark.full
def test_the_plugins_command_lists_hooks_of_files_and_packages(primus: Run, third_party: str, tmp_path: Path) -> None:
    (tmp_path / "primus.yaml").write_text("plugins: [both.py, wrong.py, torn.py]\n")
    (tmp_path / "both.py").write_text(
        "from primus_core import hookimpl, register_task\n@hookimpl\ndef on_step(metrics): ...\n"
        "@register_task('count sheep')\ndef count(call): 'Count.'\n"
    )
    (tmp_path / "wrong.py").write_text("from primus_core import hookimpl\n@hookimpl\ndef on_stpe(): ...\n")
    (tmp_path / "torn.py").write_text("from primus_core import hookimpl\n@hookimpl\ndef (\n")
    rows = primus("plugins", env={"PYTHONPATH": third_party}).stdout.splitlines()
    hooks = [row.split(maxsplit=3) for row in rows if row.startswith("hooks ") and " primus-watch " not in row]
    assert [(row[1], row[2]) for row in hooks] == [
        ("(torn.py)", "torn.py"),
        ("both", "both.py"),
        ("diary", "acme-primus"),
        ("wrong", "wrong.py"),
    ]
    assert [row[3].split()[-1] == "ok" for row in hooks] == [False, True, True, False]
    assert [row.split()[1:3] for row in rows if "sheep" in row] == [["count", "sheep"]]


def test_a_package_of_another_team_is_called(third_party: str, stage: Stage) -> None:
    stage.environ["PYTHONPATH"] = third_party
    hooks = stage.start(HookPlugin("acme-primus 2.1.0", "acme_primus.diary"))
    assert hooks.call("before_launch") is None
    hooks.call("after_run", result=RESULT)
    hooks.close()
    assert stage.logged() == (
        "[acme-primus 2.1.0] acme diary: train on 8 ranks\n[acme-primus 2.1.0] acme diary: completed after step 10\n"
    )


@pytest.mark.whole
def test_pluggy_is_not_imported_by_the_supervisors_side() -> None:
    code = "import sys, primus_core.hooks.api, primus_core.hooks.files, primus_core.plugins.catalogue; print('pluggy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


# Following a file.


def test_a_follower_gives_each_whole_line_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    follower = Follower(str(path))
    assert follower.new() == []
    path.write_bytes(b'{"step": 1}\n{"step": 2}\n{"st')
    assert follower.new() == [{"step": 1}, {"step": 2}]
    assert follower.new() == []
    with path.open("ab") as file:
        file.write(b'ep": 3}\nno json\n[1]\n\xff\n{"step": 4}\n')
    assert follower.new() == [{"step": 3}, {"step": 4}]
    assert follower.new() == []


def test_a_follower_begins_again_with_a_file_that_was_replaced_or_cut(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    follower = Follower(str(path))
    path.write_text('{"step": 1}\n{"torn')
    assert follower.new() == [{"step": 1}]
    (tmp_path / "new").write_text('{"step": 5}\n{"step": 6}\n')
    os.replace(tmp_path / "new", path)
    assert follower.new() == [{"step": 5}, {"step": 6}]
    path.write_text('{"a": 7}\n')
    assert follower.new() == [{"a": 7}]
