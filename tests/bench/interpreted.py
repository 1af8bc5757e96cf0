"""Run by test_matmul.py in a process of its own: our Triton kernel in Triton's interpreter, which is chosen at import.

Prints one JSON object per case of the list in the first argument.
"""

import dataclasses
import json
import sys

from primus_bench.benchmarks.gemm.accuracy import check
from primus_bench.benchmarks.gemm.matmul import multiply
from primus_bench.benchmarks.gemm.operands import Rotation
from primus_bench.benchmarks.gemm.problem import Problem

for case in json.loads(sys.argv[1]):
    chiplets = case.pop("chiplets")
    problem = Problem(**case)
    operands = Rotation(problem, 2, "cpu", 0).operands(1)
    found = check(lambda a, b, c: multiply(a, b, c, chiplets), operands, problem)  # noqa: B023
    print(json.dumps(dataclasses.asdict(found)))
