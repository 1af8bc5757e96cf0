"""A STAND-IN for AMD's `hipblaslt-bench`, which multiplies nothing: it prints and writes what recorded runs did.

    stand_in.py FOLDER hipblaslt-bench's arguments

FOLDER has `calls`, a line for each call, and may have `setup.json`: `version`, `device`, `named` (entries have a
kernel's name), `wait` (the M of the shape with which it waits until it is killed), `fail` (the M for which it fails).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

RECORDED = (
    "hipblaslt-bench --api_method c -m 1024 -n 512 -k 1024 --lda 1024 --ldb 1024 --ldc 1024 --ldd 1024  --stride_a 0 "
    "--stride_b 0 --stride_c 0 --stride_d 0  --alpha 1.000000 --beta 1.000000 --transA N --transB N --batch_count 1  "
    "--a_type f16_r --b_type f16_r --c_type f16_r --d_type f16_r --scale_type f32_r --bias_type f32_r   "
    "--compute_type f32_r --algo_method index --solution_index 56073"
)
"""A line of a log, as hipBLASLt's documentation records it."""
TUNED = """Git Version: d5f81531
transA,transB,grouped_gemm,batch_count,m,n,k,alpha,lda,stride_a,beta,ldb,stride_b,ldc,stride_c,ldd,stride_d,a_type,b_type,c_type,d_type,compute_type,scaleA,scaleB,scaleC,scaleD,amaxD,activation_type,bias_vector,bias_type,rotating_buffer,hipblaslt-Gflops,hipblaslt-GB/s,us,solution_index,kernel_name
N,N,0,1,1024,512,1024,1,1024,1048576,1,1024,524288,1024,524288,1024,524288,f16_r,f16_r,f16_r,f16_r,f32_r,0,0,0,0,0,none,0,f32_r,512,66613.8,363.509,16.1189,56537,Cijk_Ailk
"""
"""A tuning file with the fastest kernel for it, from there, too."""
KERNEL = (
    "Cijk_Ailk_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x128x64_MI16x16x1_SN_LDSB1_AFC0_AFEM1_AFEM1_ASEM1_CLR1_CADS0_EPS0_"
    "LBSPPA4096_LBSPPB1024_LBSPPM0_LPA0_LPB16_LRVW8_MIAV0_MIWT4_8_MO40_NTn1_PGR2_PLR1_SIA3_SK3_SKXCCM1_WS64_WG64_4_1_WGM"
)
"""The beginning of a kernel's name, as `hipblaslt-bench` printed it on an MI350X."""
COLUMNS = (
    "transA,transB,grouped_gemm,batch_count,m,n,k,alpha,lda,stride_a,beta,ldb,stride_b,ldc,stride_c,ldd,stride_d,a_type,"
    "b_type,c_type,d_type,compute_type,scaleA,scaleB,scaleC,scaleD,amaxD,activation_type,bias_vector,bias_type,"
    "rotating_buffer,hipblaslt-Gflops,hipblaslt-GB/s,us"
)


def row(m: int, n: int, k: int, us: float, **of: str) -> str:
    """A line of values for these columns."""
    a, b, c, compute = (of.get(f"--{name}_type", "f32_r") for name in ("a", "b", "c", "compute"))
    trans = f"{of.get('--transA', 'N')},{of.get('--transB', 'N')}"
    sizes = f"{m},{n},{k},1,{m},{m * k},0,{k},{k * n},{m},{m * n},{m},{m * n}"
    return f"{trans},0,1,{sizes},{a},{b},{c},{c},{compute},0,0,0,0,0,none,0,f32_r,512,{2 * m * n * k / us / 1e3:g},1.5,{us:g}"


def main(folder: Path, words: list[str]) -> int:
    """One call."""
    found = folder / "setup.json"
    setup = json.loads(found.read_text()) if found.exists() else {}
    with (folder / "calls").open("a") as calls:
        calls.write(" ".join(words) + "\n")
    of = {flag: value for flag, value in zip(words, [*words[1:], ""], strict=True) if flag.startswith("-")}
    m, n, k = (int(of[f"-{name}"]) for name in "mnk")
    version, git = setup.get("version", "100200"), setup.get("git", "d5f81531")
    print(f"hipBLASLt version: {version}\nhipBLASLt git version: {git}")
    print("Query device success: there are 8 devices. (Target device ID is 0)")
    print(f"Device ID {of['--device']} : {setup.get('device', 'AMD Instinct MI300X gfx942:sramecc+:xnack-')}")
    while setup.get("wait") == m:
        time.sleep(0.05)
    if setup.get("fail") == m:
        print("error: no solution found", file=sys.stderr)
        return 1
    us = 20.0 if of.get("--requested_solution") == "1" else 10.0
    print("Is supported 1 / Total solutions: 1")
    print(f"[0]:{COLUMNS}\n    {row(m, n, k, us, **of)}\n    --Solution index: {m + 1}")
    if path := os.environ.get("HIPBLASLT_TUNING_FILE"):
        index, name = (
            ("solution_index,kernel_name", f",{KERNEL}{m}") if setup.get("named", True) else ("soulution_index", "")
        )
        with Path(path).open("a") as file:
            file.write(f"Git Version: {git}\n{COLUMNS},{index}\n{row(m, n, k, us, **of)},{m + 7}{name}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), sys.argv[2:]))
