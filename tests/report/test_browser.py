"""Pages in a real browser without a window: drawn at every width, in the dark, on paper, and deaf to what strangers wrote."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run
from tests.report.runs import lines, make, three_attempts
from tests.report.test_command import hostile
from tests.report.test_fleet import failed
from tests.report.test_traces import STEP, of_torch

BROWSER = shutil.which("chromium")
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(BROWSER is None, reason="chromium is not installed"),
]
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--hide-scrollbars", "--virtual-time-budget=4000",
)  # fmt: skip
WATCH = """
const found = { errors: [], refused: [] };
addEventListener("error", (event) => found.errors.push(String(event.message)));
document.addEventListener("securitypolicyviolation", (event) => found.refused.push(event.violatedDirective));
"""
MEASURE = """
found.width = innerWidth;
found.wide = document.documentElement.scrollWidth;
found.drawn = document.documentElement.dataset.drawn;
found.charts = [...document.querySelectorAll(".chart")].map((one) => one.querySelectorAll("svg path").length);
found.labels = [...document.querySelectorAll(".chart")].map(
  (one) => [...one.querySelectorAll("svg text")].map((text) => text.textContent).join("").replace(/\\s/g, ""));
found.outside = [...document.querySelectorAll(".chart svg text")].filter((text) => {
  const [own, whole] = [text, text.ownerSVGElement].map((one) => one.getBoundingClientRect());
  return own.left < whole.left || own.right > whole.right || own.top < whole.top || own.bottom > whole.bottom;
}).map((text) => text.textContent);
found.loaded = performance.getEntriesByType("resource").length;
found.back = getComputedStyle(document.body).backgroundColor;
found.title = document.title;
found.images = document.querySelectorAll("img, b + img, script[src]").length;
parent.postMessage(JSON.stringify(found), "*");
"""
FRAME = """<!doctype html><title>a window of some width</title><style>body {{ margin: 0 }}</style>
<script>addEventListener("message", (event) => document.body.append(
  Object.assign(document.createElement("pre"), {{ id: "found", textContent: event.data }})))</script>
<iframe src="{name}" style="border: 0; width: {width}px; height: 4000px"></iframe>"""
"""A browser without a window is at least 500 pixels wide; a phone is not."""


def opened(page: Path, *, width: int = 1280, flags: tuple[str, ...] = ()) -> dict[str, Any]:
    """What a script in a copy of the page finds when a browser of this width has opened it."""
    text = page.read_text(encoding="utf-8")
    hashes = "".join(
        f" 'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in (WATCH, MEASURE)
    )
    text = text.replace("script-src ", f"script-src{hashes} ", 1)
    text = text.replace("<title>", f"<script>{WATCH}</script><title>", 1)
    head, end, tail = text.rpartition("</body>")
    copy = page.with_name(f"{page.stem}-{width}.html")
    copy.write_text(f"{head}<script>{MEASURE}</script>{end}{tail}", encoding="utf-8")
    frame = page.with_name(f"frame-{width}.html")
    frame.write_text(FRAME.format(name=copy.name, width=width), encoding="utf-8")
    dom = browse(frame, "--window-size=1400,900", "--dump-dom", *flags)
    written = re.search(r'<pre id="found">(.*?)</pre>', dom)
    assert written, dom[-2000:]
    found: dict[str, Any] = json.loads(html.unescape(written[1]))
    assert found["width"] == width
    return found


def browse(page: Path, *flags: str) -> str:
    """Open a page; what the browser prints."""
    profile = page.parent / "profile"
    words = [str(BROWSER), *FLAGS, f"--user-data-dir={profile}", *flags, page.as_uri()]
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={"HOME": str(page.parent), "PATH": os.defpath},
    )
    return done.stdout


@pytest.fixture
def page(primus: Run, tmp_path: Path) -> Path:
    """The page of a run with three attempts."""
    three_attempts(tmp_path / "output")
    assert primus("report", "latest", "-o", "r.html", "--price", "2").returncode == 0
    return tmp_path / "r.html"


def test_a_page_is_drawn_on_a_desk_and_on_a_phone(page: Path) -> None:
    for width in (1280, 390):
        found = opened(page, width=width)
        assert (found["errors"], found["refused"], found["loaded"]) == ([], [], 0)
        assert found["drawn"] == str(len(found["charts"])) == "9"
        assert min(found["charts"]) > 5
        assert found["wide"] <= width, "it is wider than the window"


def test_in_the_dark_a_page_is_dark_and_on_paper_it_is_light(page: Path) -> None:
    dark = opened(page, flags=("--blink-settings=preferredColorScheme=0",))
    light = opened(page, flags=("--blink-settings=preferredColorScheme=1",))
    assert (dark["back"], light["back"]) == ("rgb(20, 23, 27)", "rgb(255, 255, 255)")
    paper = page.with_name("r.pdf")
    browse(page, "--no-pdf-header-footer", f"--print-to-pdf={paper}", "--blink-settings=preferredColorScheme=0")
    assert paper.read_bytes().startswith(b"%PDF")
    assert paper.stat().st_size > 20_000


def test_what_strangers_wrote_does_nothing(primus: Run, tmp_path: Path) -> None:
    run = hostile(tmp_path)
    other = make(tmp_path, lines(1, 30, 30), name="other_2026_11_21_101526")
    assert primus("report", str(run), str(other), "-o", "r.html").returncode == 0
    found = opened(tmp_path / "r.html", width=390)
    assert (found["errors"], found["refused"], found["loaded"], found["images"]) == ([], [], 0, 0)
    assert found["title"] == "2 runs"
    assert found["wide"] <= 390


def test_the_page_of_a_workspace_and_of_traces_is_drawn_on_a_phone(primus: Run, tmp_path: Path) -> None:
    for name in ("a_2026_11_21_101526", "b_2026_11_21_101527"):
        of_torch(three_attempts(tmp_path / "output", name=name), 0, STEP)
    failed(tmp_path / "output", "c_2026_11_21_101528", "ValueError: boom", node="gpu-3")
    for words, drawn in ((("--workspace", "output"), 5), (("a", "b"), 13)):
        assert primus("report", *words, "-o", "r.html").returncode == 0
        found = opened(tmp_path / "r.html", width=390)
        assert (found["errors"], found["refused"], found["drawn"]) == ([], [], str(drawn))
        assert len(found["charts"]) == drawn
        assert min(found["charts"]) > 5
        assert found["wide"] <= 390
