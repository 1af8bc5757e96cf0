"""`bench gemm-tune` from the log to the report, with a STAND-IN for `hipblaslt-bench`: there is no AMD GPU here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.bench import stand_in
from tests.bench.stand_in import RECORDED
from tests.bench.test_tuning_files import BIAS
from tests.conftest import Run, wait_until

from primus_bench.benchmarks.gemm import hipblaslt
from primus_bench.report.sheet import as_csv
from primus_bench.tuning import calls, report, results
from primus_bench.tuning.record import RESULT, Finished, Record
from primus_bench.tuning.stack import Stack

SIZES = (1024, 2048, 4096, 8192)
CALLS = {1024: 5, 2048: 1, 4096: 2, 8192: 1}


class Bench:
    """A folder with logs, the stand-in, and a ROCm of which only the version is there."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder, self.logs, self.dir = folder, folder / "logs", folder / "tuning"
        rocm = folder / "rocm"
        for path in (self.logs, rocm / "bin", rocm / ".info"):
            path.mkdir(parents=True)
        program = rocm / "bin" / "hipblaslt-bench"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {stand_in.__file__} {folder} "$@"\n')
        program.chmod(0o755)
        self.environ = {**environ, "ROCM_PATH": str(rocm)}
        self.release("7.0.2-83")
        self.setup()
        self.log("dump_1.txt", [line(m) for m in SIZES for _ in range(CALLS[m])])

    def release(self, version: str) -> None:
        (self.folder / "rocm/.info/version").write_text(version)

    def setup(self, **said: Any) -> None:
        (self.folder / "setup.json").write_text(json.dumps(said))

    def log(self, name: str, lines: list[str]) -> Path:
        (self.logs / name).write_text("".join(f"{one}\n" for one in lines))
        return self.logs / name

    @property
    def words(self) -> tuple[str, ...]:
        return ("tune", str(self.logs), "--dir", str(self.dir), "--gpus", "2")

    @property
    def result(self) -> str:
        return str(self.dir / RESULT)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """The worker by itself, so that it can be killed with all that it started."""
        command = [sys.executable, "-m", "primus_bench.tuning.worker", *(words or self.words)]
        return subprocess.Popen(command, env=self.environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                start_new_session=True)  # fmt: skip

    def searched(self) -> list[int]:
        """The M of each search, in the order in which the stand-in was asked."""
        calls = (self.folder / "calls").read_text().splitlines() if (self.folder / "calls").exists() else []
        words = [one.split() for one in calls if "--requested_solution -1" in one]
        return [int(one[one.index("-m") + 1]) for one in words]

    def finished(self) -> int:
        path = self.dir / "finished.jsonl"
        return len(path.read_text().splitlines()) - 1 if path.exists() else 0


def line(m: int, index: int = 56073) -> str:
    text = BIAS if m == 2048 else RECORDED
    return text.replace("-m 1024", f"-m {m}").replace("56073", str(index))


@pytest.fixture
def bench(tmp_path: Path, clean_environ: dict[str, str]) -> Bench:
    return Bench(tmp_path, clean_environ)


def killed(bench: Bench) -> None:
    """A search that is killed with everything it started, while it waits for one of four shapes."""
    bench.setup(wait=4096)
    process = bench.start()
    wait_until(lambda: bench.finished() == 3 and len(bench.searched()) >= 3)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert process.stdout
    process.stdout.close()


@pytest.mark.full
def test_a_killed_search_resumes_and_its_result_is_applied_verified_and_reported(bench: Bench, primus: Run) -> None:
    killed(bench)
    before = bench.searched()
    bench.setup()
    done = primus("direct", "--", "bench", "gemm-tune", *bench.words, env=bench.environ)
    assert done.returncode == 0, done.stderr
    assert "4 shapes, 3 of them finished before; 2 GPUs" in done.stdout
    assert "speed-up 2.000" in done.stdout
    assert bench.searched()[len(before) :] == [4096], "what was finished is not done again"

    run = next(bench.folder.glob("output/bench-gemm-tune_*"))
    document = json.loads((run / "gemm-tune.json").read_text())
    assert document["versions"].pop("measured")
    assert document["versions"] == {"rocm": "7.0.2", "hipblaslt": "100200 d5f81531"}
    assert document["machine"]["host"]
    assert "measured: on not known" not in done.stdout
    assert document["device"]["architecture"] == "gfx942"
    assert {case["parameters"]["size"]: case["parameters"]["count"] for case in document["cases"]} == {
        f"512x{m}x1024": CALLS[m] for m in SIZES
    }
    entries = results.read(bench.result)
    assert {(entry.solution, entry.kernel) for entry in entries} == {(m + 7, f"{stand_in.KERNEL}{m}") for m in SIZES}

    applied = primus("bench", "gemm-tune", "apply", bench.result, env=bench.environ)
    assert applied.stdout == f"export HIPBLASLT_TUNING_OVERRIDE_FILE={bench.result}\n"
    tuned = bench.log("tuned.txt", [line(m, m + 7) for m in SIZES])
    right = primus("bench", "gemm-tune", "verify", bench.result, str(tuned))
    assert (right.returncode, right.stdout.count("tuned")) == (0, 5), right.stdout
    wrong = primus("bench", "gemm-tune", "verify", bench.result, str(bench.logs / "dump_1.txt"))
    assert wrong.returncode == 1
    assert "4 of 4 tuned shapes did not use the tuned kernel" in wrong.stderr
    assert "4096x512x1024 NN f16_r/f32_r: solution 56073 instead of 4103" in wrong.stderr

    report = bench.folder / "report.md"
    told = primus("bench", "gemm-tune", "report", bench.result, "--output", str(report))
    assert told.returncode == 0
    assert f"measured: on {document['machine']['host']}, 20" in told.stdout
    assert "| 512x1024x1024 " in report.read_text()
    assert "all calls take 0.18 ms by default, 0.09 ms tuned: speed-up 2.000" in report.read_text()


@pytest.mark.full
def test_results_of_another_version_or_architecture_are_refused(bench: Bench, primus: Run) -> None:
    assert worker(bench)[0] == 0
    for change, told in (
        ({"git": "ffffffff"}, "hipBLASLt 100200 d5f81531, and here it is 100200 ffffffff"),
        ({"device": "AMD Instinct MI355X gfx950:sramecc+:xnack-"}, "GPU architecture gfx942, and here it is gfx950"),
    ):
        bench.setup(**change)
        for words in (bench.words, ("apply", bench.result)):
            code, said = worker(bench, *words)
            assert code == 3, said
            assert told in said
            if words[0] == "apply":
                assert f"gemm-tune tune {bench.logs} --dir {bench.dir}-new" in said
    bench.setup()
    bench.release("7.1.0-12")
    code, said = worker(bench, "apply", bench.result)
    assert (code, "ROCm 7.0.2, and here it is 7.1.0" in said) == (3, True), said
    assert len(bench.searched()) == len(SIZES)


def worker(bench: Bench, *words: str) -> tuple[int, str]:
    """The exit code of the worker as a rank has it, and what it says."""
    command = [sys.executable, "-m", "primus_core.programs.rank", "primus_bench.tuning.worker", *(words or bench.words)]
    done = subprocess.run(command, env=bench.environ, text=True, capture_output=True, check=False, cwd=bench.folder)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.full
def test_entries_without_names_need_the_hipblaslt_that_wrote_them(bench: Bench) -> None:
    bench.setup(named=False)
    assert worker(bench)[0] == 0
    (bench.dir / "tune_hipblas_gemm_results.json").unlink()
    code, said = worker(bench, "apply", bench.result)
    assert code == 0, said
    assert "the file does not say for which GPU and which versions it is" in said
    bench.setup(git="ffffffff")
    code, said = worker(bench, "apply", bench.result)
    assert code == 3
    assert "for hipBLASLt d5f81531, and here it is ffffffff" in said


@pytest.mark.full
def test_a_shape_that_cannot_be_tuned_leaves_the_others_and_is_tried_again(bench: Bench) -> None:
    bench.setup(fail=2048)
    code, said = worker(bench)
    assert code == 1
    assert "1 of 4 shapes could not be tuned" in said
    assert "no solution found" in said
    assert {entry.solution for entry in results.read(bench.result)} == {m + 7 for m in SIZES if m != 2048}
    bench.setup()
    assert worker(bench)[0] == 0
    assert bench.searched().count(2048) == 2
    assert {entry.solution for entry in results.read(bench.result)} == {m + 7 for m in SIZES}


@pytest.mark.full
def test_two_searches_in_one_folder_are_refused(bench: Bench) -> None:
    bench.setup(wait=1024)
    process = bench.start()
    wait_until((bench.dir / "finished.jsonl").exists)
    code, said = worker(bench)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert code == 2
    assert f"another process tunes in {bench.dir}" in said


def test_without_the_program_it_is_exit_code_3_with_how_to_build_it(bench: Bench, primus: Run) -> None:
    environ = {**bench.environ, "ROCM_PATH": str(bench.folder / "none")}
    done = primus("direct", "--", "bench", "gemm-tune", *bench.words, env=environ)
    assert done.returncode == 3
    assert "command 'hipblaslt-bench' not found" in done.stderr
    assert "./install.sh -c" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("tune", "nothing", "--dir", "x"), "there is no file"),
        (("tune", "logs", "--dir", "x", "--method", "best"), "heuristic"),
        (("tune", "logs", "--dir", "x", "--gpus", "0"), "'0' is not a whole number from 1 to 1024"),
        (("tune", "logs"), "--dir"),
        (("tnue", "logs"), "did you mean 'tune'?"),
        (("verify", "nothing", "logs"), "there is no file"),
    ],
)
def test_what_is_typed_wrong_is_exit_code_2_before_anything_starts(
    bench: Bench, primus: Run, words: tuple[str, ...], told: str
) -> None:
    done = primus("direct", "--dry-run", "--", "bench", "gemm-tune", *words, cwd=bench.folder)
    assert done.returncode == 2
    assert told in done.stderr


def test_a_search_without_a_runtime_says_which_one(primus: Run) -> None:
    done = primus("bench", "gemm-tune", "tune", "logs", "--dir", "x")
    assert done.returncode == 2
    assert "primus direct -- bench gemm-tune tune logs --dir x" in done.stderr


def test_a_log_that_does_not_name_the_kernel_is_not_taken_for_a_tuned_one(bench: Bench, primus: Run) -> None:
    entry = f"Git Version: x\n{stand_in.COLUMNS},solution_index,kernel_name\n"
    types = {f"--{name}_type": "f16_r" for name in "abcd"} | {"--compute_type": "f32_r"}
    (bench.folder / "tuned.txt").write_text(f"{entry}{stand_in.row(1024, 512, 1024, 9.0, **types)},5,k\n")
    log = bench.log("bare.txt", [line(1024).partition(" --algo_method")[0], line(2048)])
    done = primus("bench", "gemm-tune", "verify", str(bench.folder / "tuned.txt"), str(log), "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert [row["outcome"] for row in found["shapes"]] == ["unknown", "untuned"]
    assert found["notes"] == ["1 shape of the log (1 call) without an entry"]
    nothing = bench.log("other.txt", [line(2048)])
    done = primus("bench", "gemm-tune", "verify", str(bench.folder / "tuned.txt"), str(nothing))
    assert (done.returncode, "none of its shapes was called" in done.stderr) == (1, True)


def test_a_dump_to_the_terminal_names_what_it_ignores(bench: Bench, primus: Run) -> None:
    log = bench.log("noisy.txt", [line(1024), "no call at all"])
    log.write_text(log.read_text() + line(2048)[:40])
    done = primus("bench", "gemm-tune", "dump", str(log))
    assert len(done.stdout.splitlines()) == 1
    assert "note: ignored 1 line without a call of hipblaslt-bench" in done.stderr
    assert f"note: ignored lines that were cut off: {log}:3" in done.stderr


def test_entries_that_hipblaslt_looks_up_by_more_than_is_compared_get_a_note(bench: Bench, primus: Run) -> None:
    version, columns, values = stand_in.TUNED.splitlines()
    tuned = bench.folder / "tuned.txt"
    tuned.write_text(f"{stand_in.TUNED}{version}\n{columns},schema_version\n{values},1\n")
    log = bench.log("tuned.txt", [stand_in.RECORDED.replace("56073", "56537")])
    done = primus("bench", "gemm-tune", "verify", str(tuned), str(log))
    assert done.returncode == 0, done.stderr
    assert "note: hipBLASLt also looks 1 of 2 entries up by leading dimensions, strides, epilogue" in done.stdout


def test_the_stand_in_prints_what_is_read_from_recorded_output(bench: Bench) -> None:
    words = (str(bench.folder / "rocm/bin/hipblaslt-bench"), *hipblaslt.command(hipblaslt.problem_of(8, 8, 8, "N", "N", "bf16_r"), None, 0, 1)[1:])  # fmt: skip
    printed = hipblaslt.parse(hipblaslt.call(words, bench.environ))
    assert (printed.us, printed.version) == (10.0, "100200 d5f81531")


def test_shapes_that_share_an_entry_are_reported_apart() -> None:
    (entry,) = results.parse(stand_in.TUNED)
    alone = Finished(call_text(RECORDED), "heuristic", 0, 20.0, entry)
    wider = alone._replace(command=call_text(RECORDED.replace("--ldd 1024", "--ldd 2048")), default_us=16.1189)
    failed = alone._replace(command="hipblaslt-bench -m 1", default_us=None, entry=None, failed="no kernel")
    found = report.document(Record(Stack("gfx942", "7.0.2", "1 a"), ((alone, 3), (wider, 1), (failed, 2))))
    assert [case.name for case in found.cases] == [
        "1024x512x1024 NN f16_r/f32_r",
        "1024x512x1024 NN f16_r/f32_r #2",
        "hipblaslt-bench -m 1",
    ]
    assert found.notes == [
        "all calls take 0.07612 ms by default, 0.06448 ms tuned: speed-up 1.181",
        "not tuned: hipblaslt-bench -m 1: no kernel",
    ]
    assert as_csv(report.sheet(found)).count("\n") == 4


def call_text(text: str) -> str:
    found = calls.parse(text)
    assert found
    return found.text
