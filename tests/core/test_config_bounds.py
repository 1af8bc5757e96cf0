"""A file that means more than it shows is refused at once, with its line: aliases, depth, size."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import Run

from primus_core.config.files import read
from primus_core.errors import PrimusError
from primus_machine.documents.bounds import DEPTH
from primus_machine.documents.yaml_text import parse_value
from primus_machine.files import plain_json

LEVELS = range(1, 12)
ALIASES = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in LEVELS
)
MERGES = "m0: &m0 {k: 1}\n" + "".join(f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 10)}]}}\n" for n in LEVELS)
DEEP = "nested too deeply"
FILES = {
    "aliases.yaml": (ALIASES, "too many values"),
    "merges.yaml": (MERGES, "too many values"),
    "lists.yaml": (f"d: {'[' * 100_000}{']' * 100_000}\n", DEEP),
    "mappings.yaml": (f"d: {'{a: ' * 100_000}{'}' * 100_000}\n", DEEP),
    "open.yaml": (f"d: {'&a [' * 50_000}\n", DEEP),
    "dashes.yaml": (f"d:\n  {'- ' * 100_000}x\n", DEEP),
    "indented.yaml": ("".join(f"{' ' * n}a:\n" for n in range(1_300)), DEEP),
    "itself.yaml": ("a: &a [1, *a]\n", "an alias refers to itself"),
    "merges-itself.yaml": ("a: &a {<<: *a}\n", "an alias refers to itself"),
    "lists.toml": (f"d = {'[' * 100_000}{']' * 100_000}\n", DEEP),
    "keys.toml": (f"{'.'.join(['a'] * 50_000)} = 1\n", DEEP),
    "keys.yaml": ("? \n" * 20_000, "duplicate key"),
    "many.yaml": ("".join(f"k{n}: 1\n" for n in range(90_000)), "too many values"),
    "same.yaml": (f"{{{'a: 1,' * 180_000}}}\n", "too many values"),
    "many.toml": ("".join(f"k{n} = 1\n" for n in range(80_000)), "too many values"),
    "number.toml": (f"a = {'9' * 900_000}\n", "not valid TOML"),
    "word.toml": (f"{'a' * 900_000}\n", "not valid TOML"),
    "defaults.yaml": (f"a: {'${A:' * 20_000}{'}' * 20_000}\n", "nested `${"),
    "variables.yaml": (f"a: '{'${LONG}' * 100_000}'\n", "larger than 1 MiB"),
    "large.yaml": (f"#{'x' * (3 << 20)}\n", "too large"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_means_too_much_is_refused_with_its_place(tmp_path: Path, name: str) -> None:
    text, what = FILES[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(PrimusError) as caught:
        read(str(tmp_path / name), {"LONG": "x" * 4000})
    assert what in str(caught.value)
    assert f"{name}:" in str(caught.value) or "itself" in what


def test_thousands_of_mistakes_are_not_all_searched_for(primus: Run, tmp_path: Path) -> None:
    """For each, what was meant is looked for."""
    (tmp_path / "primus.yaml").write_text("".join(f"key{n}: 1\n" for n in range(15_000)))
    done = primus("plugins", cwd=tmp_path)
    assert done.stderr.count("unknown key") == 100


def test_many_variables_in_one_text_are_filled_in_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"a: '{'${A:x}$${' * 80_000}'\n")
    assert read(str(tmp_path / "a.yaml"), {}).data == {"a": "x${" * 80_000}


def test_brackets_on_the_command_line_are_text() -> None:
    assert parse_value("[" * 100_000) == "[" * 100_000
    assert parse_value("[" * 50 + "]" * 50) != "[" * 50 + "]" * 50


def test_what_people_write_is_far_from_the_limits(tmp_path: Path) -> None:
    rows = "".join(f"k{n}: [{n}, {{a: {n}}}]\n" for n in range(2_000))
    deep = "[" * (DEPTH - 2) + "]" * (DEPTH - 2)
    (tmp_path / "x.yaml").write_text(f"base: &b {{x: 1, y: 2}}\none: *b\ntwo: {{<<: *b, x: 3}}\ndeep: {deep}\n{rows}")
    data = read(str(tmp_path / "x.yaml"), {}).data
    assert (data["one"], data["two"]) == ({"x": 1, "y": 2}, {"x": 3, "y": 2})
    assert data["k1999"] == [1999, {"a": 1999}]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000])
def test_nested_json_is_no_json(text: str) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        plain_json.loads(text)


@pytest.mark.torch
def test_a_damaged_metadata_file_of_brackets_hides_no_other_run(primus: Run, tmp_path: Path) -> None:
    run = tmp_path / "output/x_2026_01_01_000000"
    run.mkdir(parents=True)
    for name in ("metadata.json", "plan.json", "metrics.jsonl", "snapshot.json"):
        (run / name).write_text("[" * 100_000)
    for command in (("runs", "list"), ("runs", "show", str(run)), ("replay", str(run), "--check")):
        result = primus(*command)
        assert "Traceback" not in result.stderr, result.stderr
