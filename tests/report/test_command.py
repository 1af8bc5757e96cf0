"""`primus report` as people type it: the forms of a report, what is refused, and what strangers wrote into a run."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from tests.conftest import Run
from tests.report.runs import STARTED, add_lines, lines, make, three_attempts

SCRIPT = re.compile(r"<script>.*?</script>", re.S)
HOSTILE = "</script><img src=x onerror=document.title='hacked'><b>\x1b[31m\x07\u202e'\"&{{7*7}}"


def shown(page: Path) -> str:
    """A page without its scripts: the library has many words."""
    return SCRIPT.sub("<script></script>", page.read_text(encoding="utf-8"))


@pytest.mark.full
def test_one_run_as_page_markdown_and_json(primus: Run, tmp_path: Path) -> None:
    three_attempts(tmp_path / "output")
    done = primus("report", "latest", "-o", "r.html", "-o", "r.md", "-o", "r.json", "--price", "2.5")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "primus: wrote r.html\nprimus: wrote r.md\nprimus: wrote r.json\n"
    data = json.loads((tmp_path / "r.json").read_text())
    [run] = data["runs"]
    assert (data["primus_report"], run["identity"]["name"]) == (1, "small_2026_11_21_101526")
    assert run["figures"]["goodput"]["value"] == pytest.approx(100 / 229)
    assert run["figures"]["cost"]["value"] == pytest.approx(229 * 8 / 3600 * 2.5)
    assert set(run["figures"]["mfu"]) == {"title", "value", "unit", "source", "why"}
    for text in ((tmp_path / "r.md").read_text(), shown(tmp_path / "r.html")):
        assert "43.7%" in text  # 100 / 229
        assert "rank 3: ended by SIGKILL" in text


@pytest.mark.full
def test_without_a_file_it_is_printed(primus: Run, tmp_path: Path) -> None:
    run = make(tmp_path / "output", lines(1, 40, 20))
    printed = primus("report", "latest")
    assert printed.stdout.startswith("<!-- primus report -->\n# small\\_2026")
    data = json.loads(primus("report", str(run), "--json").stdout)
    assert data["runs"][0]["figures"]["tokens_per_second"]["value"] == 1024


def test_a_tile_of_a_run_of_two_steps_says_that_these_are_too_few(primus: Run, tmp_path: Path) -> None:
    make(tmp_path / "output", lines(1, 2, 20))
    assert primus("report", "latest", "-o", "r.html").returncode == 0
    page = shown(tmp_path / "r.html")
    for title in ("throughput", "step time", "longest step"):
        assert f"<span>{title}</span><b>too few steps: fewer than 3 lines after warm-up</b>" in page
    assert "not recorded</b>" not in page


def test_several_runs_are_held_against_the_first(primus: Run, tmp_path: Path) -> None:
    for name, speed in (("small_2026_11_21_101526", 1000.0), ("small_2026_11_21_153012", 1100.0)):
        rows = lines(1, 40, 20, tokens_per_second=speed)
        make(tmp_path / "output", rows, name=name, environ={"NCCL_DEBUG": "INFO" if speed > 1000 else "WARN"})
    done = primus("report", "small_2026_11_21_101526", "small_2026_11_21_153012", "-o", "two.html")
    assert done.returncode == 0, done.stderr
    page = shown(tmp_path / "two.html")
    assert "1,100 tokens/s (+10.0%)" in page
    assert re.search("NCCL_DEBUG</td><td>WARN</td><td>INFO", page)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["smal"], "did you mean 'small'?"),
        (["small", "-o", "report.pdf"], "end it in .html, .md, .json"),
        (["small", "-o", "no/report.html"], "fix: mkdir -p"),
        (["small", "-o", "mine.html"], "'mine.html' exists, and is not a report"),
        (["small", "-o", "output"], "has no known report format"),
        (["small", "--price", "cheap"], "'cheap' is not a price"),
        (["small", "--prise", "2"], "did you mean '--price'?"),
        ([], "name a run: `latest` is the newest one"),
    ],
)
def test_a_wrong_request_is_refused_and_nothing_is_written(
    primus: Run, tmp_path: Path, words: list[str], said: str
) -> None:
    make(tmp_path / "output")
    (tmp_path / "mine.html").write_text("<h1>mine</h1>")
    done = primus("report", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert (tmp_path / "mine.html").read_text() == "<h1>mine</h1>"
    assert sorted(os.listdir(tmp_path)) == ["mine.html", "output"]


@pytest.mark.full
def test_a_report_is_overwritten_and_anything_else_only_with_force(primus: Run, tmp_path: Path) -> None:
    make(tmp_path / "output", lines(1, 5, 5))
    (tmp_path / "mine.html").write_text("<h1>mine</h1>")
    for name, words in (
        ("r.html", ()),
        ("r.html", ()),
        ("mine.html", ("--force",)),
        ("r.json", ()),
        ("r.json", ()),
        ("r.md", ()),
        ("r.md", ()),
    ):
        assert primus("report", "latest", "-o", name, *words).returncode == 0
    assert "<h1>mine" not in shown(tmp_path / "mine.html")
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.full
def test_help_and_completion(primus: Run) -> None:
    assert "primus report latest -o report.html" in primus("report", "--help").stdout
    assert "Write a report of runs" in primus("--help").stdout
    done = primus("__complete", "2", "primus", "report", "--")
    assert {"--output", "--price", "--workspace", "--json", "--force"} <= set(done.stdout.split())


def hostile(folder: Path) -> Path:
    """A run in which everything that can be text is meant to do harm."""
    attempt = {
        "started": STARTED,
        "ended": STARTED + 9,
        "exit_code": 1,
        "last_step": 1,
        "what": HOSTILE,
        "lost_nodes": [HOSTILE],
    }
    known = {"model": HOSTILE, "framework": HOSTILE, "attempts": [attempt], "host": "\ud800" + HOSTILE,
             "first_failure": {"rank": 0, "what": HOSTILE}, "command": [HOSTILE], "gpu_model": HOSTILE}  # fmt: skip
    variable = {"name": HOSTILE, "value": HOSTILE, "origin": HOSTILE, "why": HOSTILE}
    backend = {
        "hyperparameters": {HOSTILE: HOSTILE},
        "settings": {HOSTILE: [HOSTILE], "api_key": "sk-live-0123456789abcdef0123456789"},
    }
    run = make(folder, lines(1, 30, 30), metadata=known, plan={"environment": [variable]}, backend=backend)
    (run / "metadata.json").write_text(
        json.dumps({**json.loads((run / "metadata.json").read_text()), "run_id": HOSTILE})
    )
    (run / "preflight").mkdir()
    problem = {"check": HOSTILE, "status": HOSTILE, "why": HOSTILE}
    (run / "preflight/n.json").write_text(json.dumps({"host": HOSTILE, "verdict": HOSTILE, "findings": [problem]}))
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b"\xff\xfe</script><script>alert(1)</script>\n")
    add_lines(run / "metrics.jsonl", lines(31, 40, 60))
    return run


def test_what_strangers_wrote_is_text(primus: Run, tmp_path: Path) -> None:
    run = hostile(tmp_path)
    done = primus("report", str(run), str(run / "."), "-o", "r.html", "-o", "r.md", "-o", "r.json")
    assert done.returncode == 0, done.stderr
    page, markdown = shown(tmp_path / "r.html"), (tmp_path / "r.md").read_text()
    assert "<img" not in page
    assert page.count("</script>") == page.count("<script") == 3
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", markdown + page)
    assert not re.search(r"(?<!\\)<(?!!-- primus report)", markdown)
    assert "{{7*7}}" in re.findall("<h1>(.*?)</h1>", page)[0]
    assert "sk-live-0123456789abcdef0123456789" not in page + markdown + (tmp_path / "r.json").read_text()


@pytest.mark.full
def test_secrets_are_in_no_form(primus: Run, tmp_path: Path) -> None:
    token = "hunter2-is-no-good-password"
    variable = {"name": "MY_URL", "value": f"https://{token}@example.com", "origin": "user", "why": ""}
    make(tmp_path / "output", lines(1, 9, 9), plan={"environment": [variable]})
    done = primus("report", "latest", "-o", "r.html", "-o", "r.md", "-o", "r.json", env={"MY_TOKEN": token})
    assert done.returncode == 0, done.stderr
    for name in ("r.html", "r.md", "r.json"):
        assert token not in (tmp_path / name).read_text().replace("\n", " "), name


@pytest.mark.full
def test_a_page_needs_no_network_and_is_small(primus: Run, tmp_path: Path) -> None:
    rows = lines(1, 20_000, 20)
    for number in range(3):
        make(tmp_path / "output", rows, name=f"long_2026_11_21_10152{number}")
    names = [f"long_2026_11_21_10152{number}" for number in range(3)]
    done = primus("report", *names, "-o", "r.html")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r.html").stat().st_size < 5_000_000
    page = shown(tmp_path / "r.html")
    assert not re.findall(r"<(?:script|img|link|iframe)[^>]*(?:src|href)=", page)
    assert "default-src 'none'" in page
    assert not re.search(r"@import|url\(", page.partition("<style>")[2].partition("</style>")[0])


@pytest.mark.full
def test_medians_of_a_long_run_are_of_all_lines(primus: Run, tmp_path: Path) -> None:
    rows = [{**row, "tokens_per_second": float(row["step"])} for row in lines(1, 30_001, 20)]
    make(tmp_path / "output", rows)
    data = json.loads(primus("report", "latest", "--json").stdout)
    assert data["runs"][0]["figures"]["tokens_per_second"]["value"] == median(range(2, 30_002))


def test_hangs_and_warnings_are_in_the_report_once_for_each_kind(primus: Run, tmp_path: Path) -> None:
    odd: list[dict[str, Any]] = [
        *({"event": "slow_step", "step": step, "message": f"step {step} took 9 s"} for step in (50, 100, 150)),
        {"event": "slow_rank", "step": 70, "slow_rank": 3, "message": f"rank 3 on {HOSTILE} is slow"},
        {"event": "hang", "level": "error", "message": "ranks hang: rank 2 on node17 keeps the others waiting"},
        {"event": "quiet", "level": "info", "message": "all is well"},
    ]
    make(
        tmp_path / "output",
        lines(1, 200, 30),
        events=[{"level": "warning", "time": STARTED + 60, **row} for row in odd],
    )
    done = primus("report", "latest", "-o", "r.html", "-o", "r.md", "-o", "r.json")
    assert done.returncode == 0, done.stderr
    [run] = json.loads((tmp_path / "r.json").read_text())["runs"]
    found = [(row["event"], row["count"], row["first_step"], row["last_step"]) for row in run["warnings"]]
    assert found == [("slow_step", 3, 50, 150), ("slow_rank", 1, 70, 70), ("hang", 1, None, None)]
    text = (tmp_path / "r.md").read_text()
    assert "step 50 took 9 s" in text
    assert "ranks hang: rank 2 on node17" in text
    assert "all is well" not in text
    assert "<img src=x" not in shown(tmp_path / "r.html")
