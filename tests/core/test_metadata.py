"""Entry points read from metadata folders, in a real interpreter with a path of its own."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from primus_machine import packages
from primus_machine.packages import docstring_line

REPORT = """
import json, sys
from primus_machine import packages
sys.path[:0] = sys.argv[2:]
points = [
    [e.group, e.name, e.module, e.attribute, *e.source.rsplit(" ", 1)]
    for e in packages.entry_points("acme.")
]
print(json.dumps({"points": points, "version": packages.version_of("acme-tools"),
                  "summaries": list(packages.module_summaries(sys.argv[1].split(",")).values())}))
"""


def package(place: Path, folder: str, entry_points: str | None) -> None:
    """A hand-made metadata folder."""
    path = place / f"{folder}.dist-info"
    path.mkdir(parents=True)
    (path / "METADATA").write_text("Metadata-Version: 2.1\n")
    if entry_points is not None:
        (path / "entry_points.txt").write_text(entry_points)


def report(
    environ: dict[str, str], *places: Path, modules: str = "acme", extra: tuple[str, ...] = ()
) -> dict[str, Any]:
    """What an interpreter with these folders on its path finds; `extra` goes on the path at run time."""
    core = str(Path(packages.__file__).parent.parent.parent)
    environ = {**environ, "PYTHONPATH": os.pathsep.join([*map(str, places), core])}
    result = subprocess.run(
        [sys.executable, "-c", REPORT, modules, *extra],
        env=environ,
        cwd=places[0],
        text=True,
        capture_output=True,
        check=True,
    )
    return dict(json.loads(result.stdout))


def test_entry_points_of_hand_made_packages_are_found(tmp_path: Path, clean_environ: dict[str, str]) -> None:
    package(
        tmp_path,
        "Acme_Tools-1.2.3",
        "[console_scripts]\nacme = acme:main\n\n[acme.tasks]\n# a comment\nrun it = acme.run:TASK\nplain=acme.plain\n"
        "old = acme.old:Class.make [extra]\n\n[acme.data]\nfolder = acme.data\n[acmeother]\nx = y\n",
    )
    package(tmp_path, "other-0.1", None)
    found = report(clean_environ, tmp_path)
    assert found["version"] == "1.2.3"
    assert found["points"] == [
        ["acme.tasks", "run it", "acme.run", "TASK", "acme-tools", "1.2.3"],
        ["acme.tasks", "plain", "acme.plain", "", "acme-tools", "1.2.3"],
        ["acme.tasks", "old", "acme.old", "Class.make", "acme-tools", "1.2.3"],
        ["acme.data", "folder", "acme.data", "", "acme-tools", "1.2.3"],
    ]


def test_of_a_package_that_is_there_twice_the_first_on_the_path_counts(
    tmp_path: Path, clean_environ: dict[str, str]
) -> None:
    for place, version in (("one", "2.0"), ("two", "1.0")):
        package(tmp_path / place, f"acme_tools-{version}", f"[acme.tasks]\nrun = acme.v{version[0]}:TASK\n")
    found = report(clean_environ, tmp_path / "one", tmp_path / "two")
    assert found["version"] == "2.0"
    assert [point[2] for point in found["points"]] == ["acme.v2"]


def test_two_packages_may_claim_one_name_and_both_are_reported(tmp_path: Path, clean_environ: dict[str, str]) -> None:
    for name in ("acme_one", "acme_two"):
        package(tmp_path, f"{name}-1.0", f"[acme.tasks]\nrun = {name}:TASK\n")
    assert [point[4] for point in report(clean_environ, tmp_path)["points"]] == ["acme-one", "acme-two"]


def test_the_current_folder_on_the_path_is_read_and_what_is_no_folder_is_skipped(
    tmp_path: Path, clean_environ: dict[str, str]
) -> None:
    package(tmp_path, "acme_tools-3.0", "[acme.tasks]\nrun = acme:TASK\n")
    (tmp_path / "acme.py").write_text('"""Here."""\n')
    (tmp_path / "a.zip").write_text("no zip")
    found = report(clean_environ, tmp_path, modules="acme", extra=("", "/nowhere", "a.zip"))
    assert [point[1] for point in found["points"]] == ["run"]
    assert found["summaries"] == ["Here."]


def test_the_summary_of_a_module_is_its_docstrings_first_line(tmp_path: Path, clean_environ: dict[str, str]) -> None:
    (tmp_path / "acme/sub").mkdir(parents=True)
    (tmp_path / "acme/__init__.py").write_text('"""The top."""\nraise SystemExit("never imported")\n')
    (tmp_path / "acme/task.py").write_text("# a licence\n\n'''\nSecond line.\n\nMore.'''\n")
    (tmp_path / "acme/sub/__init__.py").write_text('x = 1\n"""No docstring."""\n')
    found = report(clean_environ, tmp_path, modules="acme,acme.task,acme.sub,acme.gone,nowhere.at.all")
    assert found["summaries"] == ["The top.", "Second line.", "", "", ""]


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ('"""One."""', "One."),
        ('"""One.\n\nTwo."""', "One."),
        ("'''One.'''", "One."),
        ('# "a" comment\n"""One."""\n', "One."),
        ('\n\n"""\n  One.\n"""', "One."),
        ('import os\n"""One."""', ""),
        ('""""""', ""),
        ('"""', ""),
        ("", ""),
    ],
)
def test_only_what_stands_first_is_a_docstring(source: str, line: str) -> None:
    assert docstring_line(source) == line


@pytest.mark.whole
def test_what_is_installed_here_is_what_importlib_finds() -> None:
    installed = [entry for package in importlib.metadata.distributions() for entry in package.entry_points]
    expected = {(entry.group, entry.name, entry.value) for entry in installed if entry.group.startswith("primus.")}
    found = {(e.group, e.name, ":".join(filter(None, (e.module, e.attribute)))) for e in packages.entry_points()}
    assert found == expected
    assert ("primus.runtimes", "direct", "primus_core.runtimes.direct.runtime:DIRECT") in found
    assert packages.version_of("primus_core") == importlib.metadata.version("primus-core")
    assert packages.version_of("no-such-package") == ""
