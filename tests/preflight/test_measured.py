"""What measures: the load of GPUs (its program on the CPU; how it ends by programs that end so), disk, clock, kernel log."""

from __future__ import annotations

import ctypes
import json
import math
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.conftest import Run, all_gone, wait_until
from tests.machine.machines import KFD, PCI
from tests.preflight import nodes
from tests.preflight.nodes import ADDRESSES, MEASURED

from primus_machine import facts
from primus_machine.facts import Facts
from primus_machine.host import HostRoot
from primus_preflight import progress
from primus_preflight.checks import processes
from primus_preflight.checks.check import Check, Node
from primus_preflight.checks.findings import Finding, verdict
from primus_preflight.checks.measuring import NOT_HERE
from primus_preflight.checks.processes import Ended
from primus_preflight.checks.thresholds import packaged
from primus_preflight.gpu import load, measured
from primus_preflight.gpu.measured import Load, Result, Sample
from primus_preflight.host import clock, disk_speed, kernel_log
from primus_preflight.host.kernel_log import Line
from primus_preflight.verdict import node_report
from primus_preflight.verdict.node_report import NodeReport

SMALL = (
    "--device",
    "cpu",
    "--shape",
    "96",
    "64",
    "128",
    "--rotate",
    "300000",
    "--elements",
    "4096",
    "--seconds",
    "0",
    "0",
)
ON_CPU = f"import sys; from primus_preflight.gpu import load; sys.exit(load.main([*sys.argv[1:], *{SMALL}]))"


def eight(environ: dict[str, str] | None = None) -> Facts:
    """This machine, with eight MI300X."""
    return facts.read(nodes.held(nodes.healthy()))._replace(host=HostRoot(), environ=environ or dict(os.environ))


def check(name: str) -> Check:
    return next(one for one in nodes.checks() if one.name == name)


def findings(results: list[Result], stage: str) -> list[Finding]:
    """What a check of speed makes of these."""
    name = {"gemm": "gpu.gemm", "memory": "gpu.memory-bandwidth"}[stage]
    node = Node(eight()._replace(gpus=tuple(one.gpu for one in results)))
    return list(measured.speed(lambda _: results, stage)(node, packaged()[name]))


def result(gemm: dict[str, object], model: str = "MI300X", samples: tuple[Sample, ...] = ()) -> Result:
    gpu = eight().gpus[0]._replace(model=model)
    return Result(gpu, {"loaded": {}, "gemm": {"began": 10.0, "ended": 13.0} | gemm}, "", "", samples)


# GPUs: the program.


@pytest.mark.torch
def test_the_load_says_what_it_measured_and_speed_follows_from_the_median(capsys: pytest.CaptureFixture[str]) -> None:
    assert load.main(SMALL) == 0
    loaded, gemm, memory = map(json.loads, capsys.readouterr().out.splitlines())
    assert (loaded["stage"], gemm["stage"], memory["stage"]) == ("loaded", "gemm", "memory")
    assert gemm["value"] == pytest.approx(2 * 96 * 64 * 128 / gemm["seconds"] / 1e12)
    assert memory["value"] == pytest.approx(3 * 4 * 4096 / memory["seconds"] / 1e9)
    assert 0 < gemm["error"] < 0.01
    assert gemm["began"] <= gemm["ended"] <= memory["began"] <= time.monotonic()


@pytest.mark.torch
def test_each_call_gets_the_next_set_of_operands_and_the_warm_up_does_not_count() -> None:
    import torch

    turns: list[int] = []
    timed = load._timed(turns.append, torch.device("cpu"), (0.0, 0.0))
    assert turns == list(range(2 * load._BATCH))
    assert 0 < timed.seconds < timed.ended


@pytest.mark.torch
@pytest.mark.full
def test_all_gpus_of_a_node_are_measured_at_once_and_held_against_what_their_model_reaches() -> None:
    load = Load((sys.executable, "-P", "-c", ON_CPU), 240)
    node = Node(eight())
    found = load(node._replace(facts=node.facts._replace(gpus=node.facts.gpus[:2])))
    assert [one.problem for one in found] == ["", ""]
    for stage, expected in (("gemm", "≥ 497"), ("memory", "≥ 3496")):
        said = findings(found, stage)
        assert [(one.subject, one.status, one.expected) for one in said] == [
            (a, "fail", expected) for a in ADDRESSES[:2]
        ]
        assert all((one.value or 0) > 0 and one.compare == "higher" and one.fix for one in said)


@pytest.mark.torch
def test_without_the_gpu_that_it_is_told_the_load_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert load.main(["--device", "cuda:63"]) == 0
    assert "sees" in json.loads(capsys.readouterr().out.splitlines()[-1])["cannot"]


@pytest.mark.full
def test_without_torch_nothing_is_known_of_the_speed_and_how_to_get_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libamdhip64.so.6: cannot open shared object file')\n")
    node = Node(eight({**os.environ, "PYTHONPATH": str(tmp_path)}))
    for one in check("gpu.gemm").findings(node):
        assert (one.status, one.subject in ADDRESSES) == ("unknown", True)
        assert "libamdhip64.so.6" in one.why
        assert "primus container" in one.fix
    assert verdict(check("gpu.gemm").findings(node)) == "unknown"


# GPUs: how a process may end.

LOADED = """echo '{"stage": "loaded"}'"""
GEMM = f"""{LOADED}; echo '{{"stage": "gemm", "value": 600, "error": 0.001}}'"""
ENDS = f"""case "$2" in
cuda:0) {LOADED}; sleep 1000;;
cuda:1) sleep 1000;;
cuda:2) {LOADED}; echo 'Memory access fault by GPU node-2' >&2; kill -ABRT $$;;
cuda:3) {LOADED}; echo 'torch.OutOfMemoryError: HIP out of memory' >&2; exit 1;;
cuda:4) {LOADED}; echo 'Hello'; echo '[1]'; echo '{{"stage": "gemm", "value": "fast"}}'; head -c 100000 /dev/zero;;
cuda:5) {GEMM}; sleep 1000 & sleep 1000;;
cuda:6) echo '{{"cannot": "torch sees 4 GPUs"}}';;
cuda:7) {GEMM};;
esac"""


@pytest.mark.full
def test_a_process_that_hangs_crashes_or_babbles_is_a_result_and_takes_no_other_along(
    clean_environ: dict[str, str],
) -> None:
    """No process is left (see conftest), not even one that a process has started."""
    found = Load(("/bin/sh", "-c", ENDS, "sh"), 6)(Node(eight(clean_environ)))
    wait_until(lambda: all_gone(clean_environ))
    said = [(one.status, one.measured or one.why) for one in findings(found, "gemm")]
    assert said == [
        ("fail", "no result"),
        ("unknown", "torch did not load: it did not end within 6 s"),
        ("fail", "no result"),
        ("fail", "no result"),
        ("fail", "no result"),
        ("pass", "600"),
        ("unknown", "torch sees 4 GPUs"),
        ("pass", "600"),
    ]
    assert [one.why for one in findings(found, "gemm") if one.status == "fail"] == [
        "it did not end within 6 s",
        "it ended by SIGABRT: Memory access fault by GPU node-2",
        "it ended with exit code 1: torch.OutOfMemoryError: HIP out of memory",
        "its process ended without a result",
    ]
    memory = {one.subject: (one.status, one.why) for one in findings(found, "memory")}
    assert memory[ADDRESSES[5]] == ("fail", "it did not end within 6 s")


def test_a_job_that_sees_some_gpus_only_names_the_right_ones() -> None:
    def said(**line: str) -> Ended:
        return Ended(0, json.dumps(line), "")

    ended = [
        said(stage="device", address=ADDRESSES[6]),
        said(stage="loaded"),
        said(stage="device", address=ADDRESSES[5]),
    ]
    found = measured.results(eight().gpus[4:7], ended, {}, 1)
    assert [one.gpu.pci_address for one in found] == [ADDRESSES[6], ADDRESSES[4], ADDRESSES[5]]


def test_a_program_ends_with_the_one_that_asked_for_it(clean_environ: dict[str, str], tmp_path: Path) -> None:
    inner = f"import os, time; from primus_preflight.checks import processes; processes.end_with({{}}); open({str(tmp_path / 'up')!r}, 'w'); time.sleep(1000)"
    outer = (
        "import os, sys; from primus_preflight.checks import processes;"
        f"processes.together([(sys.executable, '-c', {inner!r}.format(os.getpid()))], os.environ, 1000, lambda: None)"
    )
    asking = subprocess.Popen([sys.executable, "-c", outer], env=clean_environ)
    try:
        wait_until((tmp_path / "up").exists)
    finally:
        asking.kill()
        asking.wait()
    wait_until(lambda: all_gone(clean_environ))


def test_an_interrupted_wait_leaves_no_process(clean_environ: dict[str, str]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        processes.together([("/bin/sh", "-c", "sleep 1000 & sleep 1000")] * 2, clean_environ, 1000, interrupt)
    wait_until(lambda: all_gone(clean_environ))


# GPUs: what is made of the numbers.


@pytest.mark.parametrize(
    ("gemm", "status", "said"),
    [
        ({"value": 600.0, "error": 0.0017}, "pass", "600"),
        ({"value": 300.0, "error": 0.0017}, "fail", "300"),
        ({"value": 600.0, "error": 0.5}, "fail", "a wrong result"),
        ({"value": 600.0, "error": math.nan}, "fail", "a wrong result"),
        ({"value": True}, "fail", "no result"),
    ],
)
def test_a_slow_gpu_fails_and_so_does_one_that_computes_wrong(gemm: dict[str, object], status: str, said: str) -> None:
    (found,) = findings([result(gemm)], "gemm")
    assert (found.status, found.measured) == (status, said)


def test_a_partition_has_its_share_to_reach_and_a_name_of_its_own() -> None:
    parts = [
        result({"value": value})._replace(gpu=eight().gpus[0]._replace(partition=part, partitions=8, mode="CPX/NPS4"))
        for part, value in enumerate((70.0, 60.0))
    ]
    found = findings(parts, "gemm")
    assert [one.status for one in found] == ["pass", "fail"]
    assert found[0].expected == "≥ 62.125"
    assert [one.subject for one in found] == [f"{ADDRESSES[0]} part {part}" for part in range(2)]


def test_of_a_model_nobody_knows_the_others_tell_what_it_should_reach() -> None:
    (found,) = findings([result({"value": 5.0}, model="")], "gemm")
    assert (found.status, found.compare, found.value) == ("pass", "higher", 5.0)
    assert "compared with the other nodes only" in found.expected


def moments(*mhz: float) -> tuple[Sample, ...]:
    """A GPU with these clocks, from a second before the load to one after."""
    return tuple(Sample(9.0 + second, clock, 740.0, 80.0 + second) for second, clock in enumerate(mhz))


@pytest.mark.parametrize(
    ("samples", "status", "said"),
    [
        (moments(132, 1300, 1310, 1290, 1320, 132), "pass", "1305 of 2100 MHz, 740 W, 84 °C"),
        (moments(2100, 60, 60, 60, 60, 2100), "warn", "60 of 2100 MHz, 740 W, 84 °C"),
        (tuple(one._replace(watts=None, celsius=None) for one in moments(0, 1300)), "pass", "1300 of 2100 MHz"),
        (moments(2100), "unknown", "cannot be read"),
    ],
)
def test_the_clock_counts_while_matrices_are_multiplied(samples: tuple[Sample, ...], status: str, said: str) -> None:
    tree = nodes.healthy()
    tree[f"{KFD}/2/properties"] = f"{nodes.text(tree, f'{KFD}/2/properties')}max_engine_clk_fcompute 2100\n"
    node = Node(facts.read(nodes.held(tree)))
    node = node._replace(facts=node.facts._replace(gpus=node.facts.gpus[:1]))
    (found,) = measured.clock(lambda _: [result({}, samples=samples)])(node, packaged()["gpu.clock-under-load"])
    assert found.status == status
    assert found.why.endswith(said)


def test_the_driver_is_asked_for_clock_power_and_the_hottest_place() -> None:
    tree = nodes.healthy()
    folder = f"{PCI}/{ADDRESSES[0]}/hwmon/hwmon0"
    tree |= {f"{folder}/freq1_input": "1321000000\n", f"{folder}/power1_average": "742000000\n"}
    found = measured._sample(nodes.held(tree), ADDRESSES[0])
    assert found
    assert (found.mhz, found.watts, found.celsius) == (1321.0, 742.0, 41.0)
    assert measured._sample(nodes.held(tree), ADDRESSES[1]) is None


# Disk and clock.


def test_a_disk_is_written_and_read_and_nothing_stays_there(tmp_path: Path) -> None:
    found = disk_speed.measure(str(tmp_path), size=48 << 20)
    assert found.written > 0
    assert found.read > 0
    assert list(tmp_path.iterdir()) == []


def test_a_slow_disk_is_left_after_its_time() -> None:
    moved: list[int] = []

    def move(block: int) -> int:
        moved.append(block)
        return 7

    assert disk_speed._lasting(move, 1000, limit_s=-1)[0] == 7
    assert moved == [0]


@pytest.mark.parametrize("name", ["host.disk-write", "host.disk-read"])
def test_a_disk_that_cannot_be_written_is_unknown_and_no_fault_of_the_node(name: str, tmp_path: Path) -> None:
    (found,) = check(name).findings(Node(eight(), str(tmp_path / "nowhere")))
    assert (found.status, found.severity) == ("unknown", "warn")
    assert "No such file or directory" in found.why


def test_the_kernel_is_asked_whether_its_clock_is_held_to_others() -> None:
    """As another call of the kernel says it: ntp_gettime(3) returns TIME_ERROR, 5, where it is not."""
    state = ctypes.CDLL(None).ntp_gettime(ctypes.create_string_buffer(64))
    assert clock.is_synchronised() == (None if state < 0 else state != 5)


@pytest.mark.parametrize("ahead", [0.0, 3600.0, -3600.0])
def test_a_clock_is_held_against_the_one_that_stamps_files(tmp_path: Path, ahead: float) -> None:
    assert clock.offset(str(tmp_path), lambda: time.time() + ahead) == pytest.approx(ahead, abs=60)
    assert list(tmp_path.iterdir()) == []


MOUNTS = """22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:26 / /shared rw,relatime shared:9 - nfs4 server:/export rw,vers=4.2
31 30 0:27 / /shared/fast rw,relatime - lustre mgs@tcp:/fast rw
32 22 0:28 / /old rw - ext4 /dev/sdb rw
33 22 0:29 / /old rw - nfs server:/old rw
34 22 0:30 / /my\\040home rw master:1 - xfs /dev/sdc rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/", "ext4"), ("/shared", "nfs4"), ("/shared/runs/a", "nfs4"), ("/shared/fast/a", "lustre"), ("/sharedx", "ext4"),
     ("/old/a", "nfs"), ("/my home/a", "xfs")],
)  # fmt: skip
def test_the_file_system_of_a_path_is_that_of_the_last_mount_above_it(path: str, kind: str) -> None:
    assert clock.file_system(nodes.held({"proc/self/mountinfo": MOUNTS}), path) == kind
    assert clock.file_system(nodes.held({}), path) == ""


def test_where_no_server_stamps_files_they_say_nothing_of_the_clock(tmp_path: Path) -> None:
    node = Node(facts.read(nodes.held({"proc/self/mountinfo": MOUNTS})), "/shared/fast/run")
    (found,) = clock.server(node, packaged()["host.clock-offset"])
    assert found.status == "skip"
    assert "lustre" in found.why


@pytest.mark.full
def test_a_node_whose_report_comes_from_the_future_is_named(primus: Run, tmp_path: Path) -> None:
    clocks = Finding("host.clock-offset", "", "skip", severity="warn"), Finding("host.kernel", "", "pass", "6.8")
    for name, ahead in (("n1", 0.0), ("n2", 3600.0), ("n3", -3600.0)):
        node_report.write(str(tmp_path / "some"), NodeReport(name, clocks, time=time.time() + ahead))
    done = primus("direct", "--", "preflight", "report", "some", "--json")
    found = {host: [one for one in said if one["subject"]] for host, said in json.loads(done.stdout)["nodes"].items()}
    assert (done.returncode, found["n1"], found["n3"]) == (0, [], [])
    (warning,) = found["n2"]
    assert (warning["status"], warning["expected"], warning["unit"]) == ("warn", "≤ 1", "s")
    assert 3000 < warning["value"] <= 3600


# The kernel's log.

SAMPLES = {
    "gpu-uncorrectable": "amdgpu 0000:68:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
    "gpu-bad-pages": "amdgpu 0000:26:00.0: amdgpu: Saved bad pages 128 reaches threshold value 128",
    "gpu-lost": "NVRM: fallen off the bus and is not responding to commands.",
    "gpu-xid": "NVRM: Xid (PCI:0000:44:00): 94, Contained: SM (0x1). RST: No, D-RST: No",
    "machine-check": "mce: [Hardware Error]: Uncorrected, software restartable error.",
    "pcie-fatal": "pcieport 0000:16:01.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer",
    "file-system": "EXT4-fs error (device nvme0n1p2): ext4_lookup:1855: inode #2: comm ls: deleted inode referenced: 12",
    "adapter": "mlx5_core 0000:03:00.0: poll_health:835:(pid 0): device's health compromised - reached miss count",
    "gpu-reset": "amdgpu 0000:68:00.0: amdgpu: GPU reset begin!",
    "gpu-ring": "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring comp_1.0.0 timeout, signaled seq=12, emitted seq=14",
    "gpu-xid-program": "NVRM: Xid (PCI:0000:44:00): 31, pid=1234, name=python, Ch 0000001b, MMU Fault",
    "pcie": "pcieport 0000:16:01.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer",
    "disk": "I/O error, dev nvme0n1, sector 2048 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2",
    "out-of-memory": "Memory cgroup out of memory: Killed process 14750 (python3) total-vm:98304000kB",
    "stuck": "INFO: task python:4711 blocked for more than 120 seconds.",
    "hot": "mce: CPU3: Package temperature above threshold, cpu clock throttled (total events = 1)",
}
HARMLESS = [
    "Linux version 6.8.0-60-generic (buildd@lcy02-amd64-054) (x86_64-linux-gnu-gcc-13) #63-Ubuntu SMP PREEMPT_DYNAMIC",
    "amdgpu 0000:05:00.0: amdgpu: SMU is initialized successfully!",
    "amdgpu 0000:26:00.0: amdgpu: 5 correctable hardware errors detected in total in umc block",
    "EXT4-fs (nvme0n1p2): mounted filesystem 0c with ordered data mode. Quota mode: none.",
    "pcieport 0000:16:01.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
    "IPv6: ADDRCONF(NETDEV_UP): eth0: link is not ready",
    "EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0 IMC#0: DEV 0000:3a:0a.0 (INTERRUPT)",
    "[Firmware Bug]: TSC doesn't count with P0 frequency!",
    "nvme nvme0: 96/0/0 default/read/poll queues",
    "mce: [Hardware Error]: Machine check events logged",
]


def test_each_kind_of_fault_is_known_by_its_line_and_says_what_to_do() -> None:
    rule = packaged()["host.dmesg"]
    assert SAMPLES.keys() == {fault.name for fault in kernel_log.faults()}
    for fault in kernel_log.faults():
        (found,) = kernel_log.judged(rule, [Line(5.0, SAMPLES[fault.name])], 3605.0)
        assert (found.subject, found.status, found.fix) == (fault.name, fault.severity, fault.fix)
        assert "last 60 minutes ago" in found.why
        assert found.why.startswith(fault.means)


def test_what_kernels_say_on_good_machines_is_no_fault() -> None:
    lines = [Line(1.0, text) for text in HARMLESS]
    (found,) = kernel_log.judged(packaged()["host.dmesg"], lines, 2.0)
    assert (found.status, found.measured) == ("pass", "none in 10 lines")


def test_lines_of_one_kind_are_one_finding_and_what_programs_write_is_left_out() -> None:
    reset = SAMPLES["gpu-reset"].encode()
    records = [
        b"6,0,0,-;Linux version 6.8\n",
        b"3,1,5140900,-;" + reset + b"\n SUBSYSTEM=pci\n DEVICE=+pci:0000:68:00.0\n",
        b"3,2,9000000,-,caller=T1;" + reset + b"\n",
        b"12,3,9000001,-;EXT4-fs error, says a program\n",
        b"broken",
        b"",
    ]
    lines = kernel_log.parsed(iter(records))
    assert [line.seconds for line in lines] == [0.0, 5.1409, 9.0]
    (found,) = kernel_log.judged(packaged()["host.dmesg"], lines, 9.0 + 3 * 86400)
    assert (found.status, found.subject, found.measured) == ("warn", "gpu-reset", "2 lines")
    assert "last 3 days ago: amdgpu 0000:68:00.0: amdgpu: GPU reset begin!" in found.why


def test_a_log_that_cannot_be_read_is_unknown_and_leaves_the_verdict_to_others() -> None:
    rule = packaged()["host.dmesg"]
    (empty,) = kernel_log.judged(rule, [], 1.0)
    assert empty.status == "unknown"
    assert verdict([empty, Finding("host.thp", "", "pass", "madvise")]) == "pass"


def test_the_log_of_this_machine_is_read_or_its_reader_says_why_not() -> None:
    found = check("host.dmesg").findings(Node(facts.read()))
    readable = os.access("/dev/kmsg", os.R_OK)
    assert all("check itself failed" not in one.why for one in found)
    assert readable or {one.status for one in found} == {"unknown"}


# The command.


@pytest.mark.full
def test_perf_measures_this_machine_and_contains_what_is_quick(primus: Run, tmp_path: Path) -> None:
    done = primus("direct", "--", "preflight", "--level", "perf", "--host", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == report["exit_code"], done.stderr
    (found,) = ({one["check"]: one for one in host} for host in report["nodes"].values())
    assert "host.thp" in found
    for name in ("host.disk-write", "host.disk-read"):
        assert found[name]["status"] in ("pass", "warn")
        assert found[name]["value"] > 0
    run = next((tmp_path / "output").glob("preflight_*"))
    assert not [path for path in run.rglob("*") if path.stat().st_size > 1 << 20]


def test_a_captured_machine_is_not_measured() -> None:
    node = Node(facts.read(nodes.held(nodes.healthy())), "/runs")
    found = [one for name in MEASURED for one in check(name).findings(node)]
    assert {(one.status, one.why) for one in found} == {("skip", NOT_HERE)}


def test_who_waits_is_told_what_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    asked = threading.Event()

    def what() -> str:
        asked.set()
        return "gpu.gemm (50 of 52)"

    with progress.logged(what, first_after_s=0.01):
        assert asked.wait(60)
    assert capsys.readouterr().err.startswith("preflight: gpu.gemm (50 of 52), after 0 s\n")


@pytest.mark.gpu
@pytest.mark.torch
@pytest.mark.skipif(not facts.read().gpus, reason="no GPU here")
def test_a_gpu_is_put_under_load(primus: Run) -> None:
    done = primus("direct", "--", "preflight", "--level", "perf", "--only", "gpu.gemm", "--only", "gpu.mem*", "--json")
    (found,) = json.loads(done.stdout)["nodes"].values()
    assert all(one["value"] > 10 for one in found if one["check"] in ("gpu.gemm", "gpu.memory-bandwidth")), found
