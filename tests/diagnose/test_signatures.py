from __future__ import annotations

from pathlib import Path

import pytest

from primus_core.errors import ConfigError, RequestError
from primus_diagnose.scan.scanner import Scanner
from primus_diagnose.scan.source import Source
from primus_diagnose.signatures import files
from primus_diagnose.signatures.catalogue import built_in, load
from primus_diagnose.signatures.signature import Signature
from primus_diagnose.testing import SignatureConformance
from primus_machine.host import HostRoot

MINE = """
[[signature]]
id = "acme.fan"
title = "The fan of the rack stands still"
category = "host"
severity = "fatal"
role = "cause"
patterns = ['''ACME-FAN-(?P<fan>\\d+) stopped''']
meaning = "It is too hot."
fix = ["start fan {fan}"]
source = "https://acme.example"
samples = ["ACME-FAN-3 stopped"]
"""


class TestOwn(SignatureConformance):
    """Those of Primus itself."""


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return Scanner(tuple(built_in()))


def ids(scanner: Scanner, line: str) -> set[str]:
    return {name for name, *_ in scanner.scan(Source("log", "log", text=f"{line}\n")).tallies}


def test_every_consequence_names_signatures_that_exist() -> None:
    catalogue = built_in()
    for one in catalogue:
        for pattern in one.follows:
            assert catalogue.matching([pattern]), f"{one.id} follows {pattern}"


# Wordings of other versions than those of the samples, each as its source writes it.
REWORDED = {
    "oom.gpu_torch": [
        "RuntimeError: HIP out of memory. Tried to allocate 192.00 MiB (GPU 5; 63.98 GiB total capacity; 60.00 GiB already allocated; 0 bytes free; 61.00 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.05 GiB. GPU 7 has a total capacity of 79.10 GiB of which 543.88 MiB is free. Process 77 has 78.56 GiB memory in use.",
        "hipErrorOutOfMemory: out of memory",
    ],
    "oom.host_kernel": ["kernel: Out of memory: Killed process 2113 (python3.11), UID 1000, total-vm:1, anon-rss:2"],
    "oom.host_slurm": [
        "slurmstepd: error: Detected 4 oom_kill events in StepId=77.0. Some of the step tasks have been OOM Killed."
    ],
    "nccl.ib_retry_exceeded": [
        "NCCL WARN NET/IB : Got completion from peer 10.0.0.4<1> with status=12 opcode=32631 len=0 vendor err 129 (Send) localGid ::ffff:10.0.0.1"
    ],
    "c10d.port_in_use": [
        "RuntimeError: The server socket has failed to listen on any local network address. The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use)."
    ],
    "c10d.client_timeout": [
        "RuntimeError: The client socket has timed out after 300s while trying to connect to (10.1.0.1, 29500).",
        "torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of (node0, 29500). The client socket has failed to connect to node0:29500 (errno: 111 - Connection refused).",
    ],
    "gpu.page_fault": ["Memory access fault by GPU node-4 (Agent handle: 0x1) on address 0x7f. Reason: Unknown."],
    "sched.time_limit": [
        "slurmstepd: error: *** STEP 12.0 ON gpu[1-4] CANCELLED AT 2025-11-23T10:00:00 DUE TO TIME LIMIT ***"
    ],
    "ckpt.truncated": [
        "RuntimeError: PytorchStreamReader failed reading file data/0: file read failed",
        "RuntimeError: unexpected EOF, PytorchStreamReader failed reading zip archive: not a ZIP archive",
    ],
    "py.import_name": [
        "ModuleNotFoundError: No module named 'flash_attn.flash_attn_interface'; 'flash_attn' is not a package"
    ],
    "num.nan_log": [
        "step: 12  loss: nan  grad_norm: nan",
        "completed step: 3, seconds: 1.0, TFLOP/s/device: 1.0, Tokens/s/device: 1.0, total_weights: 1, loss: nan",
    ],
    "fs.no_space": ["tar: /data/x: Cannot write: No space left on device"],
    "hf.gated": [
        "OSError: You are trying to access a gated repo. Make sure to have access to it at https://huggingface.co/x."
    ],
    "proc.segv": ["E failed (exitcode: -11) local_rank: 0 (pid: 77) of binary: /usr/bin/python"],
}


@pytest.mark.parametrize("name", REWORDED)
def test_other_versions_words_are_found_too(name: str, scanner: Scanner) -> None:
    for line in REWORDED[name]:
        assert name in ids(scanner, line), line


@pytest.mark.parametrize(
    "line",
    [
        "INFO: tokens in: 3, information: nothing",
        "loss: infer mode off",
        "Loading data from /data/nan.txt",
        "checkpoint saved to /ckpt/step-100 in 137 s",
        "NCCL INFO NET/Plugin : dlerror=librccl-net.so: cannot open shared object file: No such file or directory No plugin found",
        "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system being overloaded",
        "exit code 0",
        "[W1123 10:00:00.1 socket.cpp:767] [c10d] The client socket cannot be initialized to connect to [n]:1 (errno: 97 - Address family not supported by protocol).",
        "Warning: the data loader has 4 workers; the port 29500 is used for the rendezvous",
    ],
)
def test_harmless_lines_are_no_failures(line: str, scanner: Scanner) -> None:
    assert ids(scanner, line) <= {"c10d.ipv6_noise"}


def test_a_users_signatures_are_found_beside_those_of_primus(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINE, encoding="utf-8")
    catalogue = load(HostRoot(), [str(tmp_path)])
    assert catalogue["acme.fan"].search("ACME-FAN-12 stopped")
    assert catalogue.sources["acme.fan"] == str(tmp_path / "mine.toml")
    assert len(catalogue.by_id) == len(built_in().by_id) + 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('id = "acme.fan"', 'id = "oom.gpu_torch"'), "two signatures have the id"),
        (("role =", "rolle ="), "did you mean 'role'?"),
        (("ACME-FAN-(", "ACME-FAN-(("), "not a regular expression"),
        (("-3 stopped", "-3 started"), "no pattern matches its sample"),
        (("{fan}", "{fin}"), "'{fin}' is not a group"),
        (('"cause"', '"reason"'), "'role' is 'reason'"),
    ],
)
def test_a_mistake_in_a_signature_is_named_with_its_place(change: tuple[str, str], told: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINE.replace(*change), encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        load(HostRoot(), [str(tmp_path / "mine.toml")])
    assert told in str(raised.value)
    assert "mine.toml" in str(raised.value)


def test_signatures_that_others_can_write_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINE, encoding="utf-8")
    (tmp_path / "mine.toml").chmod(0o666)
    with pytest.raises(RequestError, match="not trusted"):
        load(HostRoot(), [str(tmp_path)])


def test_a_group_of_another_pattern_is_the_same_group() -> None:
    one = Signature("a.b", "t {n}", "c", "fatal", "cause", "m", ["f"], "s", patterns=[r"x(?P<n>\d)", r"y(?P<n2>\d)"])
    match = one.search("y7")
    assert match
    assert one.groups(match) == {"n": "7"}


def test_files_of_signatures_are_read_once_for_all_mistakes(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        MINE.replace("role", "rolle") + MINE.replace("title", "titel"), encoding="utf-8"
    )
    with pytest.raises(ConfigError) as raised:
        files.read(str(tmp_path / "mine.toml"))
    assert "rolle" in str(raised.value)
    assert "titel" in str(raised.value)
