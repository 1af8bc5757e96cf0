"""The options of benchmarks: kinds of values, options that several have, and the plan that follows from them."""

from primus_bench.options.arguments import (
    add_common,
    add_duration,
    add_outputs,
    add_seed,
    device_for,
    for_suite,
    output_words,
    outputs,
    parsed,
    repeated,
    requirements,
)
from primus_bench.options.ranks import RankBenchmark, Settings
from primus_bench.options.values import byte_count, seconds, seed, series, whole

__all__ = [
    "RankBenchmark",
    "Settings",
    "add_common",
    "add_duration",
    "add_outputs",
    "add_seed",
    "byte_count",
    "device_for",
    "for_suite",
    "output_words",
    "outputs",
    "parsed",
    "repeated",
    "requirements",
    "seconds",
    "seed",
    "series",
    "whole",
]
