"""The files of hipBLASLt tuning: recorded lines of logs and tuning files, and what is made of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bench.stand_in import RECORDED, TUNED

from primus_bench.benchmarks.gemm import hipblaslt
from primus_bench.benchmarks.gemm.problem import Problem
from primus_bench.tuning import calls, record, results, shapes
from primus_bench.tuning.calls import Call, Flag
from primus_bench.tuning.results import Entry
from primus_bench.tuning.search import default_words, search_words
from primus_core.errors import ConfigError, MachineError, PrimusError, RequestError

BARE = RECORDED.replace(" --algo_method index --solution_index 56073", "")
BIAS = RECORDED.replace("--scale_type", "--bias_vector --activation_type gelu --use_e  --scale_type")
NEGATIVE = RECORDED.replace("--alpha 1.000000 --beta 1.000000", "--alpha -1.500000 --beta -inf")
NEWER = RECORDED.replace("--api_method c", "--api_method c --cold_iters 0 --iters 0 --rotating 0 --flag_of_the_future")
OLDER = TUNED.replace("solution_index,kernel_name", "soulution_index").replace(",Cijk_Ailk", "")


def call(line: str = RECORDED) -> Call:
    found = calls.parse(line)
    assert found
    return found


@pytest.mark.parametrize("line", [RECORDED, BARE, BIAS, NEGATIVE, NEWER])
def test_a_recorded_line_loses_no_word(line: str) -> None:
    assert (calls.COMMAND, *call(line).words) == tuple(line.split())
    assert calls.parse(call(line).text) == call(line)


def test_flags_have_their_own_values_whatever_stands_between_them() -> None:
    flags = call(BIAS).flags
    assert {Flag("--bias_vector"), Flag("--activation_type", ("gelu",)), Flag("--use_e")} <= set(flags)
    assert flags.index(Flag("--use_e")) + 1 == flags.index(Flag("--scale_type", ("f32_r",)))
    assert call(NEGATIVE).value("--alpha") == "-1.500000"
    assert call(NEGATIVE).value("--beta") == "-inf"
    assert (call().solution, call(BARE).solution) == (56073, None)


def test_the_line_is_found_behind_what_a_launcher_puts_before_it() -> None:
    assert calls.parse(f"[rank 3] {RECORDED}") == calls.parse(f"/opt/rocm/bin/{RECORDED}") == call()
    for line in ("", "hipblaslt-bench", "[HIPBLASLT] api", "my-hipblaslt-bench -m 1"):
        assert calls.parse(line) is None, line


NAMES = st.from_regex(r"--?[a-zA-Z][a-zA-Z_]{1,12}", fullmatch=True).filter(
    lambda name: name.lstrip("-").lower() not in ("inf", "nan")
)
VALUES = st.one_of(
    st.integers().map(str),
    st.floats().map(repr),
    st.sampled_from(["N", "T", "f16_r", "none", "-inf", "-nan", "f8_fnuz_r"]),
)
FLAGS = st.lists(st.builds(Flag, NAMES, st.lists(VALUES, max_size=3).map(tuple)), min_size=1, max_size=12)


@given(FLAGS.map(tuple).map(Call), st.lists(st.sampled_from([" ", "  ", "   "]), min_size=1))
@pytest.mark.full
def test_any_call_is_read_as_it_was_written(written: Call, spaces: list[str]) -> None:
    assert calls.parse(written.text) == written
    wide = "".join(word + spaces[index % len(spaces)] for index, word in enumerate((calls.COMMAND, *written.words)))
    assert calls.parse(wide) == written


@given(FLAGS.map(tuple).map(Call), st.integers(1, 10**6), st.integers(0, 10**6))
@pytest.mark.full
def test_shapes_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, one: Call, times: int, index: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "shapes.jsonl"
    found = shapes.collect({one.text: times, f"{one.text} --solution_index {index}": 2}).shapes
    path.write_text(shapes.as_text(found))
    assert shapes.read([str(path)]).shapes == found
    assert sum(shape.times for shape in found) == times + 2


def test_equal_shapes_are_one_with_their_calls_and_their_kernels(tmp_path: Path) -> None:
    other = RECORDED.replace("56073", "7")
    for pid, lines in (("1", [RECORDED] * 3 + [BIAS]), ("2", [other, "", "not a call", "\udcff hipblaslt-bench -m 1"])):
        text = "".join(f"{line}\n" for line in lines) + RECORDED[:-4] * (pid == "2")
        (tmp_path / f"dump_{pid}.txt").write_bytes(text.encode("utf-8", "surrogateescape"))
    found = shapes.read([str(tmp_path)])
    assert [(shape.times, dict(shape.solutions)) for shape in found.shapes] == [(4, {56073: 3, 7: 1}), (1, {56073: 1})]
    assert (found.calls, found.other, found.torn) == (5, 2, (f"{tmp_path}/dump_2.txt:5",))
    assert found.notes == (
        "ignored 2 lines without a call of hipblaslt-bench",
        f"ignored lines that were cut off: {tmp_path}/dump_2.txt:5",
    )


@pytest.mark.parametrize("length", [len("hipblaslt-bench --api_method c -m"), 60, 200, len(BARE) - 6])
@pytest.mark.parametrize("end", ["", "\n", f"\n{RECORDED}\n"])
def test_a_line_that_was_cut_off_is_no_shape_wherever_it_ends(tmp_path: Path, length: int, end: str) -> None:
    (tmp_path / "log").write_text(f"{RECORDED}\n{BARE[:length]}{end}")
    found = shapes.read([str(tmp_path / "log")])
    assert [shape.call.text for shape in found.shapes] == [
        " ".join(RECORDED.split()).replace(" --solution_index 56073", "")
    ]
    assert found.notes == (f"ignored lines that were cut off: {tmp_path}/log:2",)


@pytest.mark.parametrize(
    "text", ["", "no call\n", '{"count": 1}\n', '{"command": "hipblaslt-bench -m 1", "count": "x"}\n']
)
def test_a_file_without_shapes_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "log").write_text(text)
    with pytest.raises(RequestError):
        shapes.read([str(tmp_path / "log")])


def test_what_has_no_end_is_refused() -> None:
    with pytest.raises(RequestError, match="/dev/zero is not a regular file"):
        shapes.read(["/dev/zero"])


def test_a_log_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cannot be read"):
        shapes.read([str(tmp_path / "none")])


def test_a_search_replaces_how_to_choose_and_to_time_and_nothing_else() -> None:
    words = search_words(call(NEWER), 3, "all")
    assert not {"--solution_index", "56073", "--iters", "--cold_iters", "index"} & set(words)
    assert words.count("--rotating") == words.count("--algo_method") == 1
    how = "--device 3 --algo_method all --requested_solution -1 --skip_slow_solution_ratio 0.7"
    assert " ".join(words).endswith(f"-i 20 -j 20 --rotating 512 --print_kernel_info {how}")
    kept = [word for word in words if word in call(NEWER).words]
    assert "--flag_of_the_future" in kept
    assert "--bias_vector" in search_words(call(BIAS), 0, "heuristic")
    assert default_words(call(), 0)[-4:] == ("--algo_method", "heuristic", "--requested_solution", "1")


def test_entries_of_all_releases_are_read_and_written_as_they_are() -> None:
    for text, kernel in ((TUNED, "Cijk_Ailk"), (OLDER, "")):
        (entry,) = results.parse(text)
        assert (entry.git_version, entry.solution, entry.kernel, entry.us) == ("d5f81531", 56537, kernel, 16.1189)
        assert entry.key == call().key
        assert results.as_text([entry]) == text
        assert list(results.parse(text * 3 + "\n")) == [entry] * 3


CELLS = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8)


@given(st.lists(st.tuples(CELLS, st.integers(1, 10**9), st.integers(0, 10**9), st.booleans()), min_size=1, max_size=5))
def test_any_tuning_file_is_read_as_it_was_written(rows: list[tuple[str, int, int, bool]]) -> None:
    (model,) = results.parse(TUNED)
    entries = []
    for version, m, index, named in rows:
        row = {**model.row, "m": str(m), "solution_index": str(index), "kernel_name": version}
        row = row if named else {name: value for name, value in row.items() if name != "kernel_name"}
        entries.append(Entry(version, tuple(row), tuple(row.values())))
    assert list(results.parse(results.as_text(entries))) == entries


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (TUNED.split("\n", 2)[2], "no header above it"),
        (TUNED.replace(",Cijk_Ailk", ""), "values for"),
        (TUNED.replace("56537", "x"), "solution_index is 'x'"),
        (TUNED.replace("solution_index", "index"), "no solution_index"),
        (TUNED.replace("compute_type", "type"), "no compute_type"),
        (TUNED.replace(",512,1024,1,", ",512,-4,1,"), "k is '-4'"),
    ],
)
def test_what_is_no_entry_is_refused_with_its_line(text: str, wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong) as caught:
        list(results.parse(text, "tuned.txt"))
    assert str(caught.value).startswith("tuned.txt:")


def test_entries_that_contradict_each_other_are_found() -> None:
    entries = list(results.parse(TUNED + TUNED + TUNED.replace("56537", "9")))
    assert results.clashes(entries) == [call().key]
    assert results.clashes(entries[:2]) == []


SIZES, FLAG = st.integers(1, 10**6), st.booleans()


@given(st.tuples(SIZES, SIZES, SIZES, st.sampled_from(["bf16", "fp16", "fp32"]), FLAG, FLAG))
def test_the_shape_of_a_call_is_the_problem_that_makes_it(of: tuple[int, int, int, str, bool, bool]) -> None:
    key = call(" ".join(hipblaslt.command(Problem(*of), None, 0, 1))).key
    assert key
    assert hipblaslt.problem_of(key.m, key.n, key.k, key.trans_a, key.trans_b, key.a_type) == Problem(*of)


@pytest.mark.parametrize(("count", "solutions"), [(-5, [[1, -5]]), (5, [[1, "x"]]), (5, [[1, 0]]), ("5", [])])
def test_a_shape_that_was_never_called_is_refused(tmp_path: Path, count: object, solutions: list[list[object]]) -> None:
    row = {"count": count, "command": RECORDED, "solutions": solutions}
    (tmp_path / "shapes.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(ConfigError, match=r"shapes.jsonl:1: the line is not a shape"):
        shapes.read([str(tmp_path / "shapes.jsonl")])


def test_what_is_finished_and_cannot_be_kept_is_an_error_of_the_machine(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"finished.jsonl cannot be written"):
        record.add(str(tmp_path / "nowhere"), record.Finished("hipblaslt-bench", "all", 0))


def test_secrets_that_a_failing_program_prints_are_not_kept(tmp_path: Path) -> None:
    program = tmp_path / "hipblaslt-bench"
    program.write_text("#!/bin/sh\necho no GPU for $MY_PASSWORD >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(PrimusError) as failed:
        hipblaslt.call((str(program),), {"MY_PASSWORD": "swordfish"})
    assert "no GPU for <secret>" in failed.value.why
