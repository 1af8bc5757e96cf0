"""A hang of one of four ranks on two real nodes: one answer, with the rank, its node and its line; nothing is left."""

from __future__ import annotations

import json
import shutil

from tests.lab.side_by_side import Lab
from tests.lab.slurm import wait_until
from tests.slurm.test_faults import ranks_of
from tests.watch.test_hangs import LIMIT_S, ODD, TASKS, line_of

from primus_diagnose import read


def test_one_of_four_ranks_on_two_nodes_is_named_once(lab: Lab) -> None:
    shutil.copy(TASKS, lab.folder / "tasks.py")
    (lab.folder / "primus.yaml").write_text("plugins: [./tasks.py]\n", encoding="utf-8")
    lab.environ["GPUS_PER_NODE"] = "2"
    limits = ("--hang-timeout", str(LIMIT_S), "--start-timeout", "300", "--grace-period", "2")
    process = lab.primus("slurm", "srun", "-N2", "--", "direct", *limits, "--", "hang", "python")
    said = "".join(process.communicate(timeout=280))
    assert process.returncode == 1, said
    run = (lab.folder / "output/hang-python").resolve()
    places = [json.loads((run / f"hang/1/node_{node}.json").read_text(encoding="utf-8"))["places"] for node in (0, 1)]
    assert [[place["rank"] for place in node] for node in places] == [[0, 1], [2, 3]]
    host = places[1][0]["node"]
    assert said.count("ranks hang: ") == 1, said
    assert f"ranks hang: rank {ODD} on {host} keeps the others waiting" in said, said
    assert line_of("python") in said
    verdict = read(str(run))
    assert verdict
    assert verdict.cause
    assert (verdict.cause.first.rank, verdict.cause.first.node) == (ODD, host)
    assert line_of("python") in verdict.cause.first.code
    wait_until(lambda: not ranks_of(run) and not lab.cluster.jobs())
