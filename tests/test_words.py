"""English that a person in a hurry understands: words that messages, help and pages are to lose, with a falling budget.

`tests/words.toml` has how often each may still be there. Who removes some lowers the number.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import ROOT

pytestmark = pytest.mark.whole

SHOWN = re.compile(r"(?:Error|Refused|Damaged|say|say_once|note|error|refusal)$")
"""Names of what is called with a text for people."""


def texts_of(path: Path) -> Iterator[str]:
    """The texts for people in a module: arguments of errors and notes, and `help=`, `why=`, `fix=` of anything."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        given = [one.value for one in node.keywords if one.arg in ("help", "why", "fix", "description", "epilog")]
        given += node.args if SHOWN.search(name) else []
        for one in given:
            for part in ast.walk(one):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value


def prose_of(page: Path) -> str:
    """A page without what is quoted on it."""
    text = re.sub(r"^ {4}.*$", "", page.read_text(encoding="utf-8"), flags=re.M)
    return re.sub(r"`[^`]*`", "", text)


def counted(texts: list[str], words: list[str]) -> Counter[str]:
    """How often each of the words stands in the texts."""
    whole = "\n".join(texts)
    return Counter({word: len(re.findall(rf"\b{word}\b", whole)) for word in words})


def test_words_to_lose_do_not_become_more() -> None:
    budget = tomllib.loads((ROOT / "tests/words.toml").read_text(encoding="utf-8"))
    sources = sorted(ROOT.glob("packages/primus-*/src/**/*.py"))
    found = {
        "pages": counted([prose_of(page) for page in sorted(ROOT.glob("docs/*.md"))], [*budget["pages"]]),
        "messages": counted([text for path in sources for text in texts_of(path)], [*budget["messages"]]),
    }
    for place, counts in found.items():
        allowed = budget[place]
        more = {word: f"{count}, {allowed[word]} allowed" for word, count in counts.items() if count > allowed[word]}
        assert not more, f"{place}: use the field's word"
