"""Run by test_matmul.py in a process of its own: compile our Triton kernel for GPUs that need not be here.

Prints one JSON object per case of the list in the first argument: shared memory and which matrix instructions.
"""

import json
import sys
from typing import Any

from triton import compiler
from triton.backends.compiler import GPUTarget

from primus_bench.benchmarks.gemm import matmul

TYPES = {1: ("fp8e4nv", "bf16"), 2: ("bf16", "bf16"), 4: ("fp32", "fp32")}
CONTIGUOUS = ("stride_ak", "stride_bn", "stride_cn")


def compiled(case: dict[str, Any]) -> dict[str, Any]:
    """The kernel for one GPU, element size and tile, both operands stored as they are multiplied."""
    kernel = matmul._kernel  # what is compiled is the kernel and not its launch
    m, n, k, stages, warps = case["tile"]
    constants = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP": 8, "CHIPLETS": case["chiplets"]}
    constants |= {"EVEN_K": case["even"], "FAR": case["far"], "WIDEN": False} | dict.fromkeys(CONTIGUOUS, 1)
    source, out = TYPES[case["width"]]
    source = "fp8e4b8" if (case["arch"], case["width"]) == ("gfx942", 1) else source
    names = kernel.arg_names
    signature = {"a": f"*{source}", "b": f"*{source}", "c": f"*{out}"}
    kinds = {name: "constexpr" if name in constants else signature.get(name, "i32") for name in names}
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name in names if kinds[name] != "constexpr"}
    program = compiler.compile(
        compiler.ASTSource(kernel, kinds, {(names.index(name),): value for name, value in constants.items()}, aligned),
        target=GPUTarget(case["backend"], case["arch"], case["warp"]),
        options={"num_stages": stages, "num_warps": warps},
    )
    text = str(program.asm.get("ptx") or program.asm["amdgcn"])
    found = [word for word in ("wgmma.mma_async", "v_mfma") if word in text]
    return {"shared": program.metadata.shared, "matrix": found}


for given in json.loads(sys.argv[1]):
    print(json.dumps(compiled(given)))
