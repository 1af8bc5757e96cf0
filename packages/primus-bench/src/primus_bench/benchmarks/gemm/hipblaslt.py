"""AMD's `hipblaslt-bench`: its command line for a problem, and what it prints.

Its matrices are column-major. A row-major C = A·B is the column-major Cᵀ = Bᵀ·Aᵀ in the same memory: M and N change
places, A and B too, and what is stored transposed here is transposed there.
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from primus_bench.benchmarks.gemm.problem import Problem
from primus_core.errors import MachineError, PrimusError
from primus_machine.secrets.redaction import redact, secret_values

__all__ = ["Printed", "call", "command", "measure", "parse", "problem_of", "version", "wrong"]

_TYPES = {"bf16": "bf16_r", "fp16": "f16_r", "fp32": "f32_r"}
_FP8 = {"float8_e4m3fnuz": "f8_fnuz_r", "float8_e4m3fn": "f8_r"}
_DTYPES = {**{kind: dtype for dtype, kind in _TYPES.items()}, **dict.fromkeys(_FP8.values(), "fp8")}
_ROTATING_MIB = 512
_CALLS = 5
"""Each prints a mean; the median and the spread are those of the means."""
_LEAST = 10
_MOST = 100_000
_TIMEOUT_S = 600
_AFFORDABLE = 5e11
"""FLOPs that the check may cost, which hipblaslt-bench does on the CPU. Beyond it, fewer rows are multiplied."""
_TOLERANCE = {"bf16": 2**-7, "fp16": 2**-10, "fp32": 1e-5}
"""Of the norm of the error, relative to that of the result, by the type of the result: one unit in the last place."""


@dataclass(frozen=True, slots=True)
class Printed:
    """What one call says."""

    us: float
    """Mean of its iterations."""
    norm_error: float | None
    """Relative; None: it was not asked to check."""
    version: str


def command(problem: Problem, fp8: str | None, device: int, iterations: int, *, check: bool = False) -> tuple[str, ...]:
    """The call that multiplies `problem` so often; `fp8`: torch's name of the device's kind."""
    p, kind = problem, _FP8[fp8 or ""] if problem.dtype == "fp8" else _TYPES[problem.dtype]
    out = _TYPES[problem.out_dtype]
    sizes = {"-m": p.n, "-n": p.m, "-k": p.k, "--lda": p.k if p.trans_b else p.n, "--ldb": p.m if p.trans_a else p.k,
             "--ldc": p.n, "--ldd": p.n}  # fmt: skip
    words = {
        "--transA": "NT"[p.trans_b], "--transB": "NT"[p.trans_a], "--a_type": kind, "--b_type": kind,
        "--c_type": out, "--d_type": out, "--compute_type": "f32_r", "--alpha": "1", "--beta": "0",
        "--initialization": "hpl", "--rotating": _ROTATING_MIB, "-i": iterations, "-j": iterations, "--device": device,
    }  # fmt: skip
    found = [str(word) for pair in {**sizes, **words}.items() for word in pair]
    return ("hipblaslt-bench", *found, "--use_gpu_timer", *["--verify"] * check)


def problem_of(m: int, n: int, k: int, trans_a: str, trans_b: str, kind: str) -> Problem:
    """The problem whose `command` has these sizes, `N` or `T` for each operand, and this type of both."""
    return Problem(n, m, k, _DTYPES.get(kind, kind), trans_a=trans_b == "T", trans_b=trans_a == "T")


def parse(text: str) -> Printed:
    """What a call printed, by the names of its columns: they differ between releases.

    Raises:
        PrimusError: there is no result in it.
    """
    lines = text.splitlines()
    for names, values in pairwise(lines):
        header, cells = names.rpartition("]:")[2].strip().split(","), values.strip().split(",")
        if header[:2] == ["transA", "transB"] and len(header) == len(cells):
            row = dict(zip(header, cells, strict=True))
            return Printed(_time(row, text), _norm_error(row), version(lines))
    raise _unreadable(text)


def _time(row: Mapping[str, str], text: str) -> float:
    try:
        us = float(row["us"])
    except (KeyError, ValueError):
        raise _unreadable(text) from None
    if not 0 < us < math.inf:  # it prints `inf,inf,0` where no kernel ran (ROCm/hipBLASLt#1786)
        raise _unreadable(text)
    return us


def _norm_error(row: Mapping[str, str]) -> float | None:
    found = [value for name, value in row.items() if name.startswith("norm_error")]
    try:
        return float(found[0]) if found else None
    except ValueError:
        return math.nan


def version(lines: Sequence[str]) -> str:
    """The version of hipBLASLt and that of its code, as the lines say them; empty: they do not."""
    reported = dict(line.split(": ", 1) for line in lines if line.startswith("hipBLASLt ") and ": " in line)
    return " ".join(filter(None, (reported.get("hipBLASLt version"), reported.get("hipBLASLt git version"))))


def _unreadable(text: str) -> PrimusError:
    last = [line.strip() for line in text.splitlines() if line.strip()][-3:]
    why = "\n".join("".join(filter(str.isprintable, line))[:200] for line in last) or "it printed nothing"
    return PrimusError("hipblaslt-bench printed no result", why=why, fix="run it by itself, or choose another --engine")


def _run(words: Sequence[str], environ: Mapping[str, str]) -> Printed:
    return parse(call(words, environ))


def call(words: Sequence[str], environ: Mapping[str, str], timeout_s: float = _TIMEOUT_S) -> str:
    """What such a call prints.

    Raises:
        MachineError: there is no such program.
        PrimusError: it failed, or took too long.
    """
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", env=dict(environ), check=False,
                              stdin=subprocess.DEVNULL, timeout=timeout_s)  # fmt: skip
    except FileNotFoundError:
        fix = "add its folder to PATH, or choose another --engine"
        raise MachineError("hipblaslt-bench is not on PATH", fix=fix) from None
    except OSError as error:
        raise MachineError("hipblaslt-bench cannot be started", why=f"{words[0]}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise PrimusError(f"hipblaslt-bench did not end within {timeout_s:g} s", why=" ".join(words)) from None
    if done.returncode:
        said = redact(f"{done.stdout}\n{done.stderr}", secret_values(environ))  # it becomes part of results
        raise _unreadable(f"{said}\nexit code {done.returncode}")
    return done.stdout


def wrong(problem: Problem, fp8: str | None, device: int, environ: Mapping[str, str]) -> tuple[str, int, float]:
    """Let it check itself: what is wrong (empty: nothing), the rows that it multiplied for that, and the error."""
    rows = max(1, min(problem.m, int(_AFFORDABLE / (2 * problem.n * problem.k))))
    found = _run(command(problem._replace(m=rows), fp8, device, 1, check=True), environ)
    error, most = found.norm_error, _TOLERANCE[problem.out_dtype]
    if error is None:
        return "hipblaslt-bench printed no norm_error", rows, math.nan
    return "" if error <= most else f"norm_error {error:.3g}; at most {most:.3g} is rounding", rows, error


def measure(problem: Problem, fp8: str | None, device: int, duration_s: float,
            environ: Mapping[str, str]) -> tuple[list[float], str]:  # fmt: skip
    """Milliseconds of several calls, each a mean, and its version."""
    first = _run(command(problem, fp8, device, _LEAST), environ)
    iterations = min(_MOST, max(_LEAST, int(duration_s * 1e6 / _CALLS / first.us)))
    words = command(problem, fp8, device, iterations)
    return [_run(words, environ).us / 1000 for _ in range(_CALLS)], first.version
