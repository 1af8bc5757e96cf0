"""Names in prose lead somewhere: each dotted name in back-quotes, in docstrings, comments of data and pages, is there."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import ROOT

pytestmark = pytest.mark.whole

SOURCES = sorted(ROOT.glob("packages/*/src/*"))
DOTTED = re.compile(r"`(\w+(?:\.\w+)+)(?:\(\))?`")
SUFFIXES = {
    "json",
    "jsonl",
    "toml",
    "yaml",
    "yml",
    "md",
    "py",
    "sh",
    "log",
    "txt",
    "csv",
    "html",
    "patch",
    "bin",
    "idx",
    "gz",
    "js",
}
OTHERS = {"primus", "data"}
"""Entry points are in groups such as `primus.tasks`, and an experiment has settings such as `data.input`."""
PAGES = [*ROOT.glob("docs/*.md"), *ROOT.glob("packages/*/README.md"), ROOT / "README.md"]


@functools.cache
def names_in(path: Path) -> frozenset[str]:
    """What a module has at its top, and in its classes: `Class.member`, and `member` alone."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return frozenset(found)


def resolves(parts: list[str], folder: Path) -> bool:
    """Whether the dotted name is below a folder of sources: modules, then what is in one."""
    for at, part in enumerate(parts):
        if (folder / part).is_dir():
            folder /= part
        elif (module := folder / f"{part}.py").is_file():
            return all(name in names_in(module) for name in parts[at + 1 :])
        else:
            return part in names_in(folder / "__init__.py") if (folder / "__init__.py").is_file() else False
    return True


def roots(own: Path | None) -> dict[str, list[Path]]:
    """What a dotted name may begin with, and below which folder it is looked for: packages, and the rooms of one's own."""
    found = {path.name: [path.parent] for path in SOURCES if path.is_dir()}
    kernel = ROOT / "packages/primus-core/src/primus_core"
    for package in filter(None, (own, kernel)):
        for path in package.iterdir():
            if (path.is_dir() or path.suffix == ".py") and not path.name.startswith("_"):
                found.setdefault(path.stem, []).append(package)
    return found


def stale(text: str, own: Path | None) -> Iterator[str]:
    """The dotted names in `text` that begin like one of ours and lead nowhere."""
    known = roots(own)
    for name in DOTTED.findall(text):
        parts = name.split(".")
        folders = [] if parts[-1] in SUFFIXES or parts[0] in OTHERS else known.get(parts[0], [])
        if folders and not any(resolves(parts, folder) for folder in folders):
            yield name


def docstrings(path: Path) -> str:
    """All texts about code in a module."""
    alone = (n.value for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.Expr))
    return "\n".join(v.value for v in alone if isinstance(v, ast.Constant) and isinstance(v.value, str))


@pytest.mark.full
def test_each_dotted_name_in_a_docstring_is_there() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for package in SOURCES
        for path in package.rglob("*.py")
        for name in stale(docstrings(path), package)
    }
    assert not found


def test_each_dotted_name_on_a_page_is_there() -> None:
    found = {f"{p.relative_to(ROOT)}: {name}" for p in PAGES for name in stale(p.read_text(encoding="utf-8"), None)}
    assert not found


def test_the_ten_objects_are_where_the_page_says() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").partition("## The ten objects")[2]
    rows = re.findall(r"^\| `(\w+)` \| .* \| `([\w.]+)` \|$", page.partition("## Rooms")[0], re.M)
    assert len(rows) == 10
    for name, where in rows:
        module = where if where.startswith("primus_") else f"primus_core.{where}"
        package = module.partition(".")[0].replace("_", "-")
        assert name in names_in(ROOT / f"packages/{package}/src/{module.replace('.', '/')}.py"), where


def test_a_name_that_has_moved_is_found() -> None:
    core = ROOT / "packages/primus-core/src/primus_core"
    assert list(stale("`multinode.rank_sockets`, `multinode.watches`, `os.path`, `plan.json`", core)) == [
        "multinode.rank_sockets"
    ]


def test_no_page_has_both_sides_of_a_merge() -> None:
    pages = [*PAGES, *ROOT.glob("packages/*/CHANGELOG.md"), *ROOT.glob("*.md"), *ROOT.glob("benchmarks/*.md")]
    assert [
        page for page in pages if re.search(r"^(?:<{7}|>{7}) ", page.read_text(encoding="utf-8"), re.MULTILINE)
    ] == []
