"""`primus direct -- train pretrain` with TorchTitan: the real command, small and real training."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests import readme
from tests.conftest import ROOT, Run
from tests.torchtitan.quickstart import CONFIG, PRIMUS, WHOLE, Gates, Whole, losses, train

pytestmark = [pytest.mark.torch]


@pytest.mark.full
def test_it_trains_and_leaves_what_a_run_leaves(whole: Whole) -> None:
    result, run = whole
    assert result.returncode == 0, result.stderr
    for name in ("plan.json", "metadata.json", "logs/rank_0.log", "logs/events.jsonl", "metrics.jsonl"):
        assert (run / name).is_file(), name
    found = losses(run)
    assert list(found) == list(range(1, 41))
    assert found[40] < found[1] * 0.85
    assert re.search(r"iteration 40/40 \| elapsed time per iteration \(ms\): [\d.]+ \| learning rate: \S+ "
                     r"\| global batch size: 4 \| loss: [\d.]+ \| grad norm: [\d.]+ \| throughput: [\d.]+ tokens/s "
                     r"\| tokens: 10240", result.stdout)  # fmt: skip
    assert re.search(r"loss +[\d.]+ at step 1 → [\d.]+ at step 40", result.stderr)
    assert "next" in result.stderr


def test_another_name_is_not_proposed_where_it_would_continue_from_a_folder_that_runs_share(
    primus: Run, tmp_path: Path
) -> None:
    def proposed(*settings: str) -> list[str]:
        words = ("direct", "--dry-run", "--json", "--", "train", "pretrain", "--config", str(CONFIG), *settings)
        found: list[str] = json.loads(primus(*words, cwd=tmp_path).stdout)["next_steps"]
        return found

    assert proposed() == ["exp_name=mine"]
    assert proposed(f"checkpoint.folder={tmp_path}/shared") == []


@pytest.mark.full
def test_the_readme_shows_what_a_run_prints(whole: Whole) -> None:
    """The same lines in the same order, but for numbers; Primus's own are on stderr, those of the ranks on stdout."""
    shown = readme.capture(readme.first_command().rpartition(" && ")[2])
    of_ranks = [line for line in shown if line.startswith("[titan]")]
    assert len(of_ranks) == 2
    assert not readme.differences(of_ranks, whole.result.stdout)
    assert not readme.differences([line for line in shown if line not in of_ranks], whole.result.stderr)


@pytest.mark.full
def test_the_readme_shows_why_a_run_fails(primus: Run) -> None:
    wrong = ("exp_name=broken", "optimizer.lr=1e9")
    result = primus(*train("training.steps=20", "checkpoint.enable=false", *wrong))
    assert result.returncode == 1
    shown = readme.capture(f"primus direct -- train pretrain --config examples/quickstart.yaml {' '.join(wrong)}")
    assert not readme.differences(shown, result.stderr)


@pytest.mark.full
def test_two_ranks_train_data_parallel_and_agree_on_the_loss(primus: Run, tmp_path: Path) -> None:
    result = primus(*train("training.steps=5", "checkpoint.enable=false"), env={"GPUS_PER_NODE": "2"})
    assert result.returncode == 0, result.stderr
    logs = tmp_path / "output/quickstart/logs"
    found = [re.findall(r"iteration (\d+)/5 .*?loss: ([\d.]+)", (logs / f"rank_{r}.log").read_text()) for r in (0, 1)]
    assert len(found[0]) == 5
    assert found[0] == found[1]
    assert "FSDP" in (logs / "rank_1.log").read_text()
    assert len(re.findall(r"iteration 5/5", result.stdout + result.stderr)) == 1, "the console shows it once"


@pytest.mark.full
@pytest.mark.smoke
def test_a_run_stopped_by_sigterm_continues_where_it_was(
    primus: Run, tmp_path: Path, clean_environ: dict[str, str], whole: Whole
) -> None:
    assert whole.result.returncode == 0, whole.result.stderr
    gates = Gates(tmp_path / "gates")
    process = subprocess.Popen([PRIMUS, *train(*WHOLE)], env={**clean_environ, **gates.environ(31)}, cwd=tmp_path,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    gates.wait(process, 31)
    process.terminate()
    assert process.wait(120) == 143
    stopped = (tmp_path / "output/quickstart").resolve()
    assert json.loads((stopped / "metadata.json").read_text())["exit_code"] == 143
    assert max(losses(stopped)) == 30
    result = primus(*train(*WHOLE))
    assert result.returncode == 0, result.stderr
    assert "continues from step 30" in result.stderr
    together = {**losses(stopped), **losses((tmp_path / "output/quickstart").resolve())}
    uninterrupted = losses(whole.run)
    assert together.keys() == uninterrupted.keys()
    assert all(math.isclose(together[step], uninterrupted[step], rel_tol=1e-6) for step in together)


@pytest.mark.full
def test_a_rank_that_raises_at_step_3_is_the_first_failure(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os\n"
        "if os.environ.get('RANK') == '1':\n"
        "    import primus_core.journal.metrics as metrics\n"
        "    line = metrics.log_line\n"
        "    def fail(row):\n"
        "        if row.step == 3:\n"
        "            raise RuntimeError('rank 1 breaks at step 3')\n"
        "        return line(row)\n"
        "    metrics.log_line = fail\n"
    )
    env = {"GPUS_PER_NODE": "2", "PYTHONPATH": str(tmp_path)}
    result = primus(*train("training.steps=20", "checkpoint.enable=false"), env=env)
    assert result.returncode == 1
    tail = result.stderr[result.stderr.rindex("Traceback") :]
    assert "RuntimeError: rank 1 breaks at step 3" in tail
    assert re.search(r"first failure rank 1 on node 0", tail)
    assert "logs/rank_1.log" in tail
    assert re.search(r"last step +[23]/20", tail)


@pytest.mark.full
def test_a_dry_run_needs_no_framework_and_no_tool(primus: Run, clean_environ: dict[str, str], tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    code = (
        "import sys\n"
        "for name in ('torch', 'torchtitan', 'triton', 'tokenizers', 'numpy'): sys.modules[name] = None\n"
        "from primus_core.cli.main import main; raise SystemExit(main(sys.argv[1:]))"
    )
    result = subprocess.run([sys.executable, "-c", code, *train(dry=True)], env={**clean_environ, "PATH": ""},
                            cwd=tmp_path, text=True, capture_output=True, check=False)  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "primus_core.programs.torchrun" in result.stdout
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.full
def test_an_old_toml_file_of_torchtitan_is_understood(primus: Run, tmp_path: Path) -> None:
    tokenizer = tmp_path / "assets/hf/Llama-3.1-8B/tokenizer.json"  # which the plan asks for
    tokenizer.parent.mkdir(parents=True)
    tokenizer.touch()
    for path in (ROOT / "examples/torchtitan").rglob("*.toml"):
        result = primus("direct", "--dry-run", "--", "train", "pretrain", "--config", str(path),
                        "exp_name=mine", env={"GPUS_PER_NODE": "8"})  # fmt: skip
        assert result.returncode == 0, result.stderr
        assert "mine_20" in result.stdout, "as the last lines of such a run propose it"


@pytest.mark.full
def test_a_misspelt_setting_of_torchtitan_is_refused_with_a_suggestion(primus: Run, tmp_path: Path) -> None:
    result = primus(*train("training.sqe_len=64"))
    assert result.returncode == 2
    assert "did you mean 'training.seq_len'?" in result.stderr
    (tmp_path / "mine.yaml").write_text(CONFIG.read_text().replace("interval: 10", "intreval: 10"))
    result = primus("direct", "--", "train", "pretrain", "--config", "mine.yaml")
    line = 1 + (tmp_path / "mine.yaml").read_text().splitlines().index("        intreval: 10")
    assert f"mine.yaml:{line}: " in result.stderr
    assert "did you mean 'checkpoint.interval'?" in result.stderr


def _gpu_is_here() -> bool:
    import torch

    return bool(torch.cuda.is_available())


@pytest.mark.gpu
@pytest.mark.full
@pytest.mark.skipif(not _gpu_is_here(), reason="torch finds no CUDA or ROCm device here")
def test_the_quickstart_uses_the_gpu_where_there_is_one(primus: Run, tmp_path: Path) -> None:
    result = primus("direct", "--", "train", "pretrain", "--config", str(CONFIG), timeout=900)
    assert result.returncode == 0, result.stderr
    run = (tmp_path / "output/quickstart").resolve()
    assert json.loads((run / "config/backend_config.json").read_text())["device"] == "gpu"
    found = losses(run)
    assert found[max(found)] < found[1] * 2 / 3


@pytest.mark.full
def test_on_slurm_the_layout_is_checked_before_the_queue_where_the_number_of_ranks_is_known(primus: Run) -> None:
    task = train("training.global_batch_size=33")[2:]
    unknown = primus("slurm", "--dry-run", "-N2", "--", *task)
    assert unknown.returncode == 0, unknown.stderr
    assert "the layout is checked on the nodes" in unknown.stdout
    known = primus("slurm", "--dry-run", "-N2", "--gpus-per-node=8", "--", *task)
    assert known.returncode == 2
    assert "is not a multiple of 64" in known.stderr
    split = primus("slurm", "--dry-run", "-N2", "--", *task, "parallelism.tensor_parallel_degree=3")
    assert split.returncode == 2, "what needs no number of ranks is checked at once"


@pytest.mark.full
def test_a_default_of_primus_is_not_called_the_frameworks(primus: Run) -> None:
    name = "template:torchtitan/llama3.1_8B/MI300X"
    rows = json.loads(primus("config", "show", name, "--resolved", "--json").stdout)
    assert rows["auto_continue_train"] == {"value": True, "origin": "default of Primus"}
    assert rows["checkpoint.async_mode"]["origin"].startswith("default of torchtitan")
