"""The logger of tasks and workers: text on the console, JSON in the run's one file, secrets in neither."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import re
import subprocess
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.conftest import ROOT, Run, free_port

from primus_core import get_logger
from primus_core.logger.logger import STEP
from primus_core.testing import capture_logs

TASK = """
from primus_core import get_logger, register_task

log = get_logger(component="reader")

@register_task("read shards", scope="rank")
def read(call):
    "Log from every rank."
    print("rank", call.rank, "prints")
    log.debug("looking", folder="data")
    log.info("shard opened", shard=call.rank, path="data/a b.bin")
    log.warning("shard is short", shard=call.rank, hf_token="correct-horse", tokens=50256)
"""
SECRET = "hunter2-hunter2"


@pytest.fixture
def reader(tmp_path: Path) -> Path:
    """A folder whose task logs."""
    (tmp_path / "primus.yaml").write_text("plugins: [./reader.py]\n")
    (tmp_path / "reader.py").write_text(TASK)
    return tmp_path


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process is rank 3 of a run, on node 1."""
    (tmp_path / "run/logs").mkdir(parents=True)
    for name, value in {"PRIMUS_RUN_DIR": str(tmp_path / "run"), "NODE_RANK": "1", "RANK": "3"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PRIMUS_LOG_LEVEL", raising=False)
    return tmp_path / "run"


def lines(run: Path) -> list[dict[str, Any]]:
    """The whole file: each line is an object, or empty, where a writer was held up in the middle of another one."""
    return [json.loads(line) for line in (run / "logs/events.jsonl").read_text().splitlines() if line]


def of_ranks(run: Path, component: str) -> list[tuple[int, int, str]]:
    """Node, rank and level of the lines with a `component` or a `framework` of this name."""
    own = [line for line in lines(run) if component in (line.get("component"), line.get("framework"))]
    return sorted((line["node"], line["rank"], line["level"]) for line in own)


def two_nodes(primus: Run, folder: Path, words: Sequence[str], **environ: str) -> list[Any]:
    """Both started by hand, at once; they share a run directory."""
    shared = {
        "NNODES": "2", "GPUS_PER_NODE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port()),
        "PRIMUS_RUN_DIR": str(folder / "output/shared"), "PRIMUS_RUN_ID": "shared", **environ,
    }  # fmt: skip
    with ThreadPoolExecutor(2) as pool:
        nodes = pool.map(lambda n: primus("direct", "--", *words, env={**shared, "NODE_RANK": n}, cwd=folder), "01")
        return list(nodes)


@pytest.mark.full
def test_a_task_logs_text_to_the_console_and_json_to_the_runs_file(primus: Run, reader: Path) -> None:
    done = primus("direct", "--single", "--", "read", "shards", cwd=reader)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "rank 0 prints\n"
    assert 'shard opened component=reader shard=0 path="data/a b.bin"\n' in done.stderr
    assert "WARNING: shard is short component=reader shard=0 hf_token=<secret> tokens=50256\n" in done.stderr
    folder = (reader / "output/read-shards").resolve()
    assert "WARNING: shard is short" in (folder / "logs/rank_0.log").read_text()
    opened = next(line for line in lines(folder) if line["event"] == "shard opened")
    assert opened.pop("time") > 1.7e9
    assert opened.pop("host")
    assert opened == {
        "level": "info", "event": "shard opened", "run": folder.name, "node": 0, "rank": 0, "component": "reader",
        "shard": 0, "path": "data/a b.bin",
    }  # fmt: skip


def test_every_line_of_a_run_has_time_level_run_node_and_rank(primus: Run, reader: Path) -> None:
    assert primus("direct", "--single", "--", "read", "shards", cwd=reader).returncode == 0
    found = lines((reader / "output/read-shards").resolve())
    assert {"run_started", "step_ended", "shard is short", "run_ended"} <= {line["event"] for line in found}
    for line in found:
        assert {"time", "level", "event", "run", "node", "rank", "host"} <= line.keys()
    assert {line["rank"] for line in found} == {None, 0}, "the supervisor has no rank"


@pytest.mark.torch
@pytest.mark.full
def test_a_task_on_four_ranks_of_two_nodes_writes_one_file(primus: Run, reader: Path) -> None:
    nodes = two_nodes(primus, reader, ("read", "shards"), HF_TOKEN=SECRET)
    assert [node.returncode for node in nodes] == [0, 0], nodes
    run = reader / "output/shared"
    assert of_ranks(run, "reader") == [
        (node, 2 * node + local, level) for node in (0, 1) for local in (0, 1) for level in ("info", "warning")
    ]
    assert {line["run"] for line in lines(run)} == {"shared"}
    everything = "".join(path.read_text() for path in run.glob("logs/*.*")) + nodes[0].stderr + nodes[1].stderr
    assert "correct-horse" not in everything
    assert len(re.findall("^shard opened", nodes[0].stderr, re.M)) == 1, "of rank 0, as all that it prints"
    assert not re.search("shard opened", nodes[1].stderr)
    for node, local in ((0, 1), (1, 0), (1, 1)):
        assert f"[rank{2 * node + local}] WARNING: shard is short" in nodes[node].stderr


@pytest.mark.parametrize(
    ("words", "environ", "shown"),
    [
        ((), {}, "INFO"),
        (("--debug",), {}, "DEBUG"),
        ((), {"PRIMUS_LOG_LEVEL": "debug"}, "DEBUG"),
        (("--env", "PRIMUS_LOG_LEVEL=warning"), {}, "WARNING"),
        ((), {"PRIMUS_LOG_LEVEL": "loud"}, "INFO"),
    ],
)
@pytest.mark.full
def test_the_level_is_info_unless_an_option_or_a_variable_says_otherwise(
    primus: Run, reader: Path, words: tuple[str, ...], environ: dict[str, str], shown: str
) -> None:
    done = primus("direct", "--single", *words, "--", "read", "shards", env=environ, cwd=reader)
    assert ("DEBUG: looking component=reader folder=data" in done.stderr) == (shown == "DEBUG")
    assert ("shard opened" in done.stderr) == (shown != "WARNING")
    assert "WARNING: shard is short" in done.stderr
    levels = {line["level"] for line in lines((reader / "output/read-shards").resolve()) if line["rank"] == 0}
    assert ("debug" in levels, "info" in levels) == (shown == "DEBUG", shown != "WARNING")
    wrong = (
        "WARNING: PRIMUS_LOG_LEVEL is 'loud', which is not a log level; known: debug, info, warning, error, critical"
    )
    assert (wrong in done.stderr) == ("loud" in environ.values())


def test_a_dry_run_of_a_file_that_asks_for_a_logger_does_not_load_structlog(primus: Run, reader: Path) -> None:
    source = (reader / "reader.py").read_text()
    (reader / "reader.py").write_text(f"{source}\nimport sys\nassert 'structlog' not in sys.modules\n")
    done = primus("direct", "--dry-run", "--", "read", "shards", cwd=reader)
    assert done.returncode == 0, done.stderr


def test_a_rank_that_logs_nothing_does_not_load_structlog(clean_environ: dict[str, str]) -> None:
    code = "import sys, primus_core.programs.own_task, primus_core.programs.rank; print('structlog' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=clean_environ, text=True, capture_output=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.full
def test_what_fails_is_an_error_in_the_runs_file(primus: Run, reader: Path) -> None:
    (reader / "reader.py").write_text(TASK + "    return 7\n")
    assert primus("direct", "--single", "--", "read", "shards", cwd=reader).returncode == 7
    levels = {line["event"]: line["level"] for line in lines((reader / "output/read-shards").resolve())}
    assert (levels["step_started"], levels["step_ended"], levels["run_ended"]) == ("info", "error", "error")


def test_a_process_without_a_run_writes_text_only(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PRIMUS_RUN_DIR")
    get_logger().info("by hand")
    monkeypatch.setenv("PRIMUS_RUN_DIR", str(run / "gone"))
    get_logger().info("and again")
    gone = f"{run}/gone/logs/events.jsonl cannot be written: No such file or directory; lines of it are lost"
    assert capsys.readouterr().err == f"by hand\nprimus: WARNING: {gone}\nand again\n"
    assert list(run.rglob("*.jsonl")) == []


@dataclass
class Login:
    user: str
    token: str


class Pair(NamedTuple):
    user: str
    token: str


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"password": "12345678"}, {"password": "<secret>"}),
        ({"password": 12345678}, {"password": "<secret>"}),
        ({"url": "https://me:pa55word@host/x"}, {"url": "https://me:<secret>@host/x"}),
        ({"note": f"the value is {SECRET}"}, {"note": "the value is <secret>"}),
        ({"login": {"api_key": ["a-b-c", {"deep": "d"}], "user": "me"}},
         {"login": {"api_key": ["<secret>", {"deep": "<secret>"}], "user": "me"}}),
        ({"argv": ["mysql", "--password", "Sommer2026x", "-v"]}, {"argv": ["mysql", "--password", "<secret>", "-v"]}),
        ({"argv": ("--api-key", "correct horse stapler")}, {"argv": ["--api-key", "<secret>"]}),
        ({"argv": ["curl", "--token=a-b-c", "--steps=4"]}, {"argv": ["curl", "--token=<secret>", "--steps=4"]}),
        ({"a": Login("me", "a-b-c"), "b": Pair("me", "a-b-c")}, {name: {"user": "me", "token": "<secret>"} for name in "ab"}),
        ({"args": Namespace(user="me", password="a-b-c-d")}, {"args": "Namespace(user='me', password='<secret>')"}),
        ({"pair": ("token", "Sommer2026x")}, {"pair": ["token", "<secret>"]}),
        ({"a": {"b": [1, ["sh", ["--password", "Sommer2026x"]]]}}, {"a": {"b": [1, ["sh", ["--password", "<secret>"]]]}}),
        ({"words": ["a", "--password", "--user", "me"]}, {"words": ["a", "--password", "--user", "me"]}),
        ({"path": Path("/data"), "loss": float("nan"), "done": {1}}, {"path": "/data", "loss": None, "done": [1]}),
        ({"token": 50256, "has_password": True, "api_key": None}, {"token": 50256, "has_password": True, "api_key": None}),
    ],
)  # fmt: skip
def test_a_secret_in_a_field_is_masked_in_the_file_and_on_the_console(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    fields: dict[str, Any], kept: dict[str, Any],
) -> None:  # fmt: skip
    get_logger().info("before the variable is set")
    monkeypatch.setenv("MY_API_KEY", SECRET)
    get_logger().info("logged in", **fields)
    line = lines(run)[-1]
    assert {name: line[name] for name in fields} == kept
    text = capsys.readouterr().err.splitlines()[-1]
    for secret in (SECRET, "pa55word", "12345678", "a-b-c", "Sommer2026x", "stapler"):
        assert secret not in text


class Scalar:
    """A number as NumPy, PyTorch and JAX have it."""

    ndim = 0

    def item(self) -> float:
        return 3.5


class Unspeakable:
    def __str__(self) -> str:
        raise OSError("no words")


class Unmappable(dict[str, int]):
    def items(self) -> Any:
        raise OSError("no items")


def test_a_scalar_of_an_array_library_is_a_number(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    get_logger().info("a", loss=Scalar(), several=[Scalar(), 1])
    assert (lines(run)[0]["loss"], lines(run)[0]["several"]) == (3.5, [3.5, 1])
    assert capsys.readouterr().err == "a loss=3.5 several=[3.5, 1]\n"


def test_a_field_of_the_caller_takes_the_place_of_none_of_ours(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = {"run": "mine", "node": 8, "rank": 9, "time": "late", "host": "h", "level": "loud"}
    get_logger(rank=7).bind(rank_=5).info("a", **theirs)
    [line] = lines(run)
    assert (line["node"], line["rank"], line["level"]) == (1, 3, "info")
    assert (line["rank_"], line["rank__"]) == (5, 9)
    text = capsys.readouterr().err
    for word in ("run_=mine", "node_=8", "rank_=5", "rank__=9", "time_=late", "host_=h", "level_=loud"):
        assert f" {word}" in text


@pytest.mark.parametrize(
    ("logged", "event"),
    [
        (lambda log: log.info(None, k=1), "None"),
        (lambda log: log.info(k=1), ""),
        (lambda log: log.info(event="named", k=1), "named"),
        (lambda log: log.info("bad %d", "x", k=1), "bad %d"),
        (lambda log: log.info("a", event="b", self=1, method_name="c"), "a"),
        (lambda log: log.info("a", field=Unspeakable()), "a"),
        (lambda log: log.info("a", field={Unspeakable(): [Unspeakable()]}), "a"),
        (lambda log: log.info("a", field=Unmappable(a=1)), "a"),
        (lambda log: log.info("a", field="\ud800"), "a"),
        (lambda log: log.info("a", field=10**5000), "a"),
        (lambda log: log.info(Unspeakable()), "<Unspeakable, whose str() raises OSError>"),
        (lambda log: log.info(("a", 1)), "('a', 1)"),
        (lambda log: log.log(25, "a"), "a"),
        (lambda log: asyncio.run(log.ainfo("bad %d", "x")), "bad %d"),
        (lambda log: log.log("info", "a"), "a"),
        (lambda log: log.log("wrong", "a"), "a"),
        (lambda log: log.log(), ""),
        (lambda log: log.exception("a"), "a"),
        (lambda log: log.info("a", exc_info=5), "a"),
    ],
)
def test_a_wrong_line_is_logged_and_does_not_raise(run: Path, logged: Callable[[Any], None], event: str) -> None:
    logged(get_logger())
    [line] = lines(run)
    assert line["event"] == event
    get_logger().info("after")
    assert lines(run)[-1]["event"] == "after"


def test_a_level_between_two_is_the_lower_one(run: Path) -> None:
    for level in (0, 25, 45, 90):
        get_logger().log(level, "a")
    assert [line["level"] for line in lines(run)] == ["info", "error", "critical"], "debug is not shown"


def test_a_stack_is_logged_where_one_is_asked_for(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    get_logger().info("a", stack_info=True)
    [line] = lines(run)
    assert "stack_info" not in line
    assert "test_a_stack_is_logged" in line["stack"].splitlines()[-2]
    assert capsys.readouterr().err.startswith("a\nStack (most recent call last):\n")


def test_what_contains_itself_is_logged(run: Path) -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    get_logger().info("round", ring=ring)
    assert lines(run)[0]["ring"][0] == 1


def test_an_exception_is_logged_with_its_traceback_and_without_its_secrets(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    try:
        raise ValueError(f"refused {SECRET}")
    except ValueError:
        get_logger().exception("upload failed", path="x")
    [line] = lines(run)
    assert (line["level"], line["path"]) == ("error", "x")
    assert line["exception"].endswith("ValueError: refused <secret>")
    text = capsys.readouterr().err
    assert text.startswith("ERROR: upload failed path=x\nTraceback (most recent call last):\n")
    assert text.endswith("ValueError: refused <secret>\n")


def test_a_message_is_what_people_read_in_place_of_event_and_fields(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    get_logger().warning("checkpoint_cut_off", message="the checkpoint of step 4 was cut off", step=4)
    assert capsys.readouterr().err == "WARNING: the checkpoint of step 4 was cut off\n"
    assert lines(run)[0].items() >= {"event": "checkpoint_cut_off", "step": 4}.items()


def test_the_step_in_hand_is_bound_and_a_field_of_the_line_wins(run: Path) -> None:
    token = STEP.set(lambda: 7)
    try:
        get_logger().info("a")
        get_logger().bind(step=9).info("b")
    finally:
        STEP.reset(token)
    get_logger().info("c")
    assert [line.get("step") for line in lines(run)] == [7, 9, None]


def test_a_hook_has_no_rank_whatever_it_inherits(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIMUS_IN_HOOK", "1")
    get_logger().info("from a hook")
    assert (lines(run)[0]["node"], lines(run)[0]["rank"]) == (1, None)


def test_lines_of_many_threads_do_not_mix(run: Path) -> None:
    log = get_logger()

    def work(number: int) -> None:
        for count in range(50):
            log.info("x" * 20_000, thread=number, count=count)  # longer than a page: half of it can be seen

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({(line["thread"], line["count"]) for line in lines(run)}) == 200


def test_a_logger_can_be_copied_and_pickled_with_what_holds_it(run: Path) -> None:
    log = get_logger(component="loader")
    copy.deepcopy(log).info("copied")
    pickle.loads(pickle.dumps(log)).info("pickled")
    pickle.loads(pickle.dumps(log.bind(shard=1))).info("bound")
    assert [(line["component"], line.get("shard")) for line in lines(run)] == [
        ("loader", None),
        ("loader", None),
        ("loader", 1),
    ]


def test_a_test_captures_what_is_logged_as_structlog_gives_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = get_logger(component="reader")
    log.info("before")
    with capture_logs() as captured:
        log.bind(shard=1).warning("shard is short", size=2)
    log.info("after")
    assert captured == [
        {"component": "reader", "shard": 1, "size": 2, "event": "shard is short", "log_level": "warning"}
    ]
    assert [line["event"] for line in lines(run)] == ["before", "after"]
    assert capsys.readouterr().err.count("\n") == 2


@pytest.mark.full
def test_the_task_that_the_page_shows_logs_what_the_page_shows(primus: Run, tmp_path: Path) -> None:
    page = (ROOT / "docs/logging.md").read_text(encoding="utf-8")
    source = re.search(r"^    from primus_core import get_logger.*?(?=^\S)", page, re.M | re.S)
    assert source
    (tmp_path / "primus.yaml").write_text("plugins: [./shards.py]\n")
    (tmp_path / "shards.py").write_text(re.sub("^ {4}", "", source[0], flags=re.M))
    done = primus("direct", "--single", "--", "check", "shards", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for text in re.findall(r"^    ((?:WARNING: )?shard .*)$", page, re.M):
        assert f"{text}\n" in done.stderr
    shown = json.loads(" ".join(re.search(r'^    (\{"time".*?\})$', page, re.M | re.S)[1].split()))  # type: ignore[index]
    written = next(line for line in lines((tmp_path / "output/check-shards").resolve()) if line["level"] == "warning")
    assert shown.keys() == written.keys()
    kept = {"event", "level", "node", "rank", "shard", "tokens", "api_key"}
    assert {name: shown[name] for name in kept} == {name: written[name] for name in kept}
