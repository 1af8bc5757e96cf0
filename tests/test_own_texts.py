"""No code of ours looks for words in a message of ours: an error has fields, a record has fields, a note has fields."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import ROOT

pytestmark = pytest.mark.whole

KERNEL = ("primus-core", "primus-machine", "primus-runs", "primus-slurm", "primus-container", "primus-train")
SEARCHES = {
    "startswith",
    "endswith",
    "removeprefix",
    "removesuffix",
    "partition",
    "rpartition",
    "index",
    "find",
    "count",
}
PATTERNS = {"compile", "match", "search", "fullmatch", "findall", "finditer"}
OF_OTHERS = {
    "the following arguments are required: ",  # of argparse; a benchmark writes the same
    "no such", "not supported",  # of srun and container engines, about an option
    "out of memory",  # of Linux
    "most recent call first",  # of Python's faulthandler
    "lm loss",  # a key of Megatron's
}  # fmt: skip
"""Words that other programs print, and we, too."""


def sources(names: tuple[str, ...] = ("*",)) -> list[Path]:
    """The modules of these packages."""
    return sorted(path for name in names for path in ROOT.glob(f"packages/{name}/src/**/*.py"))


def docstrings(tree: ast.AST) -> set[int]:
    """The constants of `tree` that are text about code."""
    alone = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    return {id(value) for value in alone if isinstance(value, ast.Constant)}


def looked_for(tree: ast.AST) -> Iterator[tuple[ast.Constant, str]]:
    """The constants that are looked for in a text, and the words of each: of a pattern, those between its signs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            found, is_pattern = [node.left], False
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            is_pattern = node.func.attr in PATTERNS
            found = node.args[:1] if is_pattern or node.func.attr in SEARCHES else []
        else:
            continue
        for one in found:
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                parts = re.split(r"[\\()\[\]{}|.*+?^$]+", one.value) if is_pattern else [one.value]
                yield from ((one, part) for part in parts)


def searches(paths: list[Path]) -> list[str]:
    """`file:line: words` for each search for words that stand in another text of ours."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    wanted = [
        (path, node, words)
        for path, tree in trees.items()
        for node, words in looked_for(tree)
        if re.search(r"[a-z] [a-z]", words) and words not in OF_OTHERS
    ]
    own = {id(node) for _, node, _ in wanted}
    texts = [
        node.value
        for tree in trees.values()
        for written in (docstrings(tree),)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in own | written
    ]
    whole = "\0".join(texts)
    return [
        f"{path.relative_to(ROOT)}:{node.lineno}: {words!r}" for path, node, words in wanted if words.strip() in whole
    ]


def test_no_code_of_the_kernel_looks_for_words_of_our_own() -> None:
    assert searches(sources(KERNEL)) == []


@pytest.mark.full
def test_no_code_of_any_package_looks_for_words_of_our_own() -> None:
    assert searches(sources()) == []


def test_a_search_for_our_own_words_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.test_own_texts.ROOT", tmp_path)
    (tmp_path / "a.py").write_text('raise ValueError("there is no file here")\n', encoding="utf-8")
    (tmp_path / "b.py").write_text('x = "no file" in y\nre.search(r"there is (no) file", y)\n', encoding="utf-8")
    found = searches([tmp_path / "a.py", tmp_path / "b.py"])
    assert found == ["b.py:1: 'no file'", "b.py:2: 'there is '"]
