"""`data prepare` shared over the nodes of a real cluster, one of which is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.conftest import Run
from tests.data import oracle
from tests.data.conftest import as_lines, texts, tokenizer_file
from tests.lab.slurm import wait_until

__all__ = ["texts", "tokenizer_file"]

PARTS = 40


def prepared(prefix: str, tokenizer_file: str) -> tuple[str, ...]:
    return ("data", "prepare", "--input", "in.jsonl", "--output-prefix", prefix, "--tokenizer-model", tokenizer_file,
            "--append-eod", "--partitions", str(PARTS))  # fmt: skip


def host_pid(claim: Path) -> int:
    """The process that holds a claim: it names itself as it is called on its node, which has a namespace of its own."""
    owner = json.loads(claim.read_text(encoding="utf-8"))
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            same = os.readlink(f"/proc/{entry}/ns/pid") == owner["namespace"]
            status = Path(f"/proc/{entry}/status").read_text(encoding="utf-8").splitlines()
            numbers = next(line for line in status if line.startswith("NSpid:")).split()
            if same and int(numbers[-1]) == owner["pid"]:
                assert b"primus_data.worker" in Path(f"/proc/{entry}/cmdline").read_bytes()
                return int(entry)
    raise AssertionError(f"nobody holds {claim}")


def test_a_preparation_shared_by_four_nodes_is_finished_when_one_is_killed(
    primus: Run,
    clean_environ: dict[str, str],
    on_cluster: dict[str, str],
    texts: list[str],
    tokenizer_file: str,
    tmp_path: Path,
) -> None:
    (tmp_path / "in.jsonl").write_bytes(as_lines(texts) * 60)
    command = [str(Path(sys.executable).with_name("primus")), "slurm", "srun", "-N", "4", "--", "direct", "--"]
    environ = {**clean_environ, **on_cluster}
    process = subprocess.Popen(
        [*command, *prepared("four", tokenizer_file)], cwd=tmp_path, env=environ, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    folder = tmp_path / ".four.preparing"
    wait_until(lambda: len(list(folder.glob("*/claims/*.claim"))) > 2 or process.poll() is not None, every=0.01)
    os.kill(host_pid(sorted(folder.glob("*/claims/*.claim"))[-1]), signal.SIGKILL)
    out, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert "another node has taken over" in said
    assert primus(*prepared("one", tokenizer_file), cwd=tmp_path).returncode == 0
    assert oracle.files(tmp_path / "four_text_document") == oracle.files(tmp_path / "one_text_document")
    run = (tmp_path / "output/data-prepare").resolve()
    known: dict[str, Any] = json.loads((run / "metadata.json").read_text(encoding="utf-8"))
    assert (known["status"], known["exit_code"], known["first_failure"]) == ("completed", 0, None)
    assert not (tmp_path / ".four.preparing").exists()
    assert sum("documents, " in line for line in out.splitlines()) == 1
