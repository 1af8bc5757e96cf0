"""A file of shapes: CSV or JSON lines, and every mistake in it at once."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_bench.benchmarks.gemm.problem import DTYPES, LAYOUTS, Problem
from primus_bench.benchmarks.gemm.shapes import read
from primus_core.errors import RequestError

SIZES = st.integers(1, 2**31 - 1)


def written(folder: Path, text: str) -> str:
    """A file with that text."""
    path = folder / "shapes"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_csv_and_json_lines_say_the_same(tmp_path: Path) -> None:
    table = "m, n, k, count, dtype, trans, groups, name\n8,16,32,4,fp16,TN,2,up\n\n64,64,64,,,,,\n"
    rows = [{"m": 8, "n": 16, "k": 32, "count": 4, "dtype": "FP16", "trans": "tn", "groups": 2, "name": "up"},
            {"m": 64, "n": 64, "k": 64}]  # fmt: skip
    expected = (Problem(8, 16, 32, "fp16", True, False, "up", 4, 2), Problem(64, 64, 64, "fp32"))
    assert read(written(tmp_path, table), "fp32") == expected
    assert read(written(tmp_path, "\n".join(map(json.dumps, rows))), "fp32") == expected


def test_equal_shapes_are_measured_once_and_their_numbers_add_up(tmp_path: Path) -> None:
    [one] = read(written(tmp_path, "m,n,k,count\n8,8,8,3\n8,8,8,\n"), "bf16")
    assert one.repeats == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("m,n,cout\n8,8,8\n", ["shapes:1: unknown name 'cout'", "did you mean 'count'?", "there is no 'k'"]),
        ("m,n,k,dtype,trans\n8,0,8k,bf61,NX\n8,8\n",
         [":2: n is '0'", ":2: k is '8k'", "did you mean 'bf16'?", "known: NN, NT, TN, TT", ":3: the line has 2 values"]),
        ('{"m": 8, "n": 8, "k": 8.0}\n{"m": true, "n": 1, "k": 1}\n[]\n{"m": 1\n',
         [":1: k is 8.0", ":2: m is True", ":3: the line is not a JSON object", ":4: the line is not a JSON object"]),
        ('{"m": 8, "n": 8}', [":1: there is no 'k'"]),
        ("m,n,k,name\n8,8,8,a=b\n", [":2: name is 'a=b'"]),
        ("m,n,k,name\n8,8,8,x\n9,9,9,x\n", ["several shapes are called 'x'"]),
        ("m,n,k,groups\n8,8,8,9\n", ["9 groups of 8 rows"]),
        ("m,n,k\n", ["has 0 shapes"]),
        ("", ["has 0 shapes"]),
        ("m,n,k\n" + "\n".join(f"{n},8,8" for n in range(1, 502)), ["has 501 shapes", "1 to 500"]),
        ("x" * 200_000 + "\n1\n", ["is not CSV"]),
    ],
)  # fmt: skip
def test_whatever_is_wrong_is_said_at_once_with_its_line(tmp_path: Path, text: str, said: list[str]) -> None:
    with pytest.raises(RequestError) as caught:
        read(written(tmp_path, text), "bf16")
    assert [part for part in said if part not in str(caught.value)] == []
    assert caught.value.exit_code == 2


def test_a_file_that_cannot_be_read_is_refused_and_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\0")
    (tmp_path / "large").write_bytes(b" " * (2**20 + 1))
    for name in ("none", "fifo", "binary", "large", "."):
        with pytest.raises(RequestError, match="cannot be read"):
            read(str(tmp_path / name), "bf16")


@given(
    st.builds(Problem, SIZES, SIZES, SIZES, st.sampled_from(DTYPES), st.booleans(), st.booleans(),
              st.text("ab-/. :+=x,0", max_size=20), SIZES, SIZES, st.sampled_from(("m", "k")))
)  # fmt: skip
def test_a_problem_is_the_same_after_it_was_an_argument(problem: Problem) -> None:
    assert Problem.of_word(problem.word()) == problem
    assert problem.layout in LAYOUTS
