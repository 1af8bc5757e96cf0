"""How much of the kernel a launch under `direct` passes: what somebody has to read who wants to know all of it.

The launch is a real one, of two ranks by torchrun, with no package but the kernel and a task. Nothing is counted that it
does not load: scripts, replays, schedulers, Python hooks and the messages of a refused request.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

MOST_LINES = 7_000

LAUNCH = """
import json, sys
from primus_core.cli.main import main
code = main()
found = {name: module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "primus_core"}
print(json.dumps({"code": code, "modules": found}))
"""
TASK = """
from primus_core.plan.plan import Worker
from primus_core.plugins.contracts import TaskPlan

class Probe:
    name, scope, epilog = "probe", "rank", ""
    def add_arguments(self, parser): pass
    def plan(self, call): return TaskPlan(call.place("output", "probe"), Worker("probe", (), "torchrun"))

PROBE = Probe()
"""
TORCHRUN = """
import os, subprocess, sys

def main():
    words = sys.argv[sys.argv.index("--") + 1 :]
    for rank in range(int(sys.argv[sys.argv.index("--nproc-per-node") + 1])):
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        subprocess.run([sys.executable, "-m", *words], env={**os.environ, **place}, check=True)
"""
SIGNALS = """
class SignalException(Exception):
    pass

def _terminate_process_handler(number, frame):
    pass
"""


def installed(folder: Path) -> str:
    """The kernel's metadata, a task and a torchrun in `folder`; the PYTHONPATH with them and nothing else."""
    sources = []
    for name in ("primus-core", "primus-machine"):
        metadata = Path(str(distribution(name).locate_file("."))) / f"{name.replace('-', '_')}-0.1.0.dist-info"
        (folder / metadata.name).symlink_to(metadata)
        [source] = __import__(name.replace("-", "_")).__path__
        sources.append(str(Path(source).parent))
    (folder / "probe.py").write_text(TASK)
    (folder / "probe-1.0.dist-info").mkdir()
    (folder / "probe-1.0.dist-info/entry_points.txt").write_text("[primus.tasks]\nprobe = probe:PROBE\n")
    signals = folder / "torch/distributed/elastic/multiprocessing"
    signals.mkdir(parents=True)
    for package in (signals, *signals.parents[:3]):
        (package / "__init__.py").touch()
    (signals / "api.py").write_text(SIGNALS)
    (folder / "torch/distributed/run.py").write_text(TORCHRUN)
    return os.pathsep.join([str(folder), *sources])


def test_a_launch_under_direct_passes_at_most_7000_lines_of_the_kernel(
    tmp_path: Path, clean_environ: dict[str, str]
) -> None:
    (tmp_path / "site").mkdir()
    environ = {**clean_environ, "PYTHONPATH": installed(tmp_path / "site"), "GPUS_PER_NODE": "2"}
    command = [sys.executable, "-S", "-c", LAUNCH, "direct", "--", "probe"]
    ran = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["code"] == 0, ran.stderr
    assert "worker: 2 ranks" in ran.stderr
    lines = {name: Path(file).read_bytes().count(b"\n") for name, file in found["modules"].items()}
    assert "primus_core.runtimes.direct.torchrun" in lines
    assert sum(lines.values()) <= MOST_LINES, "\n".join(f"{count:5} {name}" for name, count in sorted(lines.items()))
