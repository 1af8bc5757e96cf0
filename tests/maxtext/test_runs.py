"""`primus direct -- train pretrain` with MaxText: real, small runs, and what is left of them."""

from __future__ import annotations

import importlib.util
import json
import re
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("primus_maxtext", reason="primus-maxtext needs Python 3.12: hatch run maxtext:test")

from tests.conftest import Run, free_port
from tests.maxtext.conftest import EXPERIMENT, needs_maxtext
from tests.project import TASK, Project, losses, rows
from tests.tensorboard import scalars

from primus_core.runs.saved import load

SECRET = "hf_" + "Zq7" * 10
OF_TWO_BY_TWO = ("ici_fsdp_parallelism=2", "ici_tensor_parallelism=2", "per_device_batch_size=1")
"""Four devices with the four sequences of one."""
STEPS = 24


@pytest.fixture(scope="module")
def run(project: Project) -> Path:
    """One device, with all that may stand beside a training."""
    (project.folder / "hooks/train").mkdir(parents=True)
    (project.folder / "hooks/train/01.sh").write_text("echo env.MY_VARIABLE=from-the-hook\n")
    (project.folder / "watch.py").write_text(
        "from primus_core import hookimpl\n@hookimpl\ndef on_step(metrics): print('saw step', metrics['step'])\n"
    )
    (project.folder / "primus.yaml").write_text("plugins: [./watch.py]\n")
    words = ["eval_interval=8", "eval_steps=2", "checkpoint_period=10", f"steps={STEPS}"]
    words += ["enable_tensorboard=true"] if importlib.util.find_spec("tensorboardX") else []
    project("direct", *TASK, *words, HF_TOKEN=SECRET)
    return project.newest


@pytest.fixture(scope="module")
def alone(project: Project) -> list[float]:
    """What one device loses in four steps, by the script that a dry run prints."""
    shown = project("direct", "--dry-run", *TASK, "exp_name=pasted")
    pasted = subprocess.run(["bash"], input=shown.stdout, env=project.environ, cwd=project.folder, text=True,
                            capture_output=True, check=False, timeout=300)  # fmt: skip
    assert pasted.returncode == 0, pasted.stderr[-3000:]
    return [float(loss) for loss in re.findall(r"iteration \d/4 .* \| loss: ([\d.]+)", pasted.stdout)]


@pytest.fixture(scope="module")
def four(project: Project) -> Path:
    """The same on four devices."""
    project("direct", *TASK, *OF_TWO_BY_TWO, GPUS_PER_NODE="4")
    return project.newest


@needs_maxtext
@pytest.mark.full
class TestOneRun:
    def test_the_loss_of_real_text_falls_and_each_step_is_a_line(self, run: Path) -> None:
        found = rows(run)
        assert [row["step"] for row in found] == list(range(1, STEPS + 1))
        assert found[-1]["loss"] < found[0]["loss"] - 0.5
        last = found[-1]
        assert (last["steps"], last["global_batch_size"], last["tokens"]) == (STEPS, 4, STEPS * 4 * 64)
        assert all(found[1][name] > 0 for name in ("lr", "grad_norm", "tflops_per_gpu", "step_time_s"))
        planned = json.loads((run / "config/backend_config.json").read_text())
        assert last["tflops_per_gpu"] == pytest.approx(last["tokens_per_second"] * planned["flops_per_token"] / 1e12)
        assert last["mfu"] is None, "of a CPU"
        log = (run / "logs/rank_0.log").read_text()
        assert log.count(f"iteration {STEPS}/{STEPS} | elapsed time per iteration (ms):") == 1
        assert "completed step" not in log, "MaxText's own line would say it twice"

    def test_the_time_of_a_step_is_training_without_saves_and_evaluations(self, run: Path) -> None:
        found = rows(run)
        assert all(row["tokens_per_second"] * row["step_time_s"] == pytest.approx(4 * 64) for row in found)
        assert {row["step"] for row in found if row["evaluation_s"]} == {2, 10, 18}, "the steps after one"
        assert {12, 22} <= {row["step"] for row in found if row["save_s"]}, "told with the next step to begin"
        events = [json.loads(line) for line in (run / "logs/events.jsonl").read_text().splitlines()]
        [ended] = [event for event in events if event["event"] == "training_ended"]
        assert ended["step"] == STEPS
        assert ended["save_s"] > 0, "the last checkpoint comes after the last step"

    def test_all_time_is_that_of_maxtexts_own_log(self, run: Path) -> None:
        """Its time of a step ends when the step is begun, and counts saves and evaluations before it."""
        if not importlib.util.find_spec("tensorboardX"):
            pytest.skip("tensorboardX is not installed")
        own, found = scalars(run)["perf/step_time_seconds"], rows(run)
        ours = sum(row["step_time_s"] + row["save_s"] + row["evaluation_s"] for row in found)
        longest = max(row["step_time_s"] for row in found)
        assert ours == pytest.approx(sum(own.values()), rel=0.01, abs=2 * longest)

    def test_each_evaluation_is_a_line(self, run: Path) -> None:
        every = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        found = [(row["step"], row["validation_loss"]) for row in every if "validation_loss" in row]
        assert [step for step, _ in found] == [1, 9, 17], "MaxText begins with one"
        assert found[-1][1] < found[0][1]
        assert (run / "logs/rank_0.log").read_text().count(f"| validation loss: {found[-1][1]:.5f}") == 1

    def test_checkpoints_are_told_of_when_they_are_whole(self, run: Path) -> None:
        events = [json.loads(line) for line in (run / "logs/events.jsonl").read_text().splitlines()]
        saved = [(event["step"], event["path"]) for event in events if event["event"] == "checkpoint_saved"]
        assert [step for step, _ in saved] == [11, 21, STEPS]
        assert all(Path(path, "commit_success.txt").exists() for _, path in saved)

    def test_hooks_set_variables_and_follow_the_steps(self, run: Path) -> None:
        assert "MY_VARIABLE=from-the-hook" in (run / "env/primus_env_dump.txt").read_text()
        said = (run / "logs/hooks.log").read_text()
        assert f"saw step {STEPS}\n" in said

    def test_a_secret_is_nowhere_in_the_run(self, run: Path) -> None:
        files = [path for path in run.rglob("*") if path.is_file()]
        assert not importlib.util.find_spec("tensorboardX") or any("tfevents" in path.name for path in files)
        assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


@needs_maxtext
@pytest.mark.full
def test_the_script_that_a_dry_run_prints_trains(alone: list[float]) -> None:
    assert len(alone) == 4


@needs_maxtext
@pytest.mark.full
def test_four_devices_lose_what_one_does(four: Path, alone: list[float]) -> None:
    assert losses(four) == pytest.approx(alone, rel=1e-5)
    assert json.loads((four / "metadata.json").read_text())["world_size"] == 1


@needs_maxtext
@pytest.mark.full
def test_a_replay_of_it_loses_the_same_again(project: Project, four: Path) -> None:
    project("replay", str(four))
    assert project.newest != four
    assert losses(project.newest) == losses(four)
    assert load(str(project.newest)).environment["XLA_FLAGS"] == "--xla_force_host_platform_device_count=4"


@needs_maxtext
@pytest.mark.full
def test_two_nodes_lose_what_one_does_and_save_in_one_directory(project: Project, alone: list[float]) -> None:
    done = by_hand(project, "both", "both", "per_device_batch_size=2")
    assert [node.returncode for node in done] == [0, 0], done
    both = project.folder / "output/both"
    assert losses(both) == pytest.approx(alone, rel=1e-5)
    assert (both / "checkpoints/3/commit_success.txt").exists()
    assert "iteration" not in (both / "logs/rank_1.log").read_text(), "one node reports"


@needs_maxtext
@pytest.mark.full
def test_nodes_without_a_common_run_directory_end_before_the_first_step(project: Project) -> None:
    first, second = by_hand(project, "here", "there", "per_device_batch_size=2")
    for node in (first, second):
        assert node.returncode == 3, node.stderr
        assert "node 0 saves checkpoints in a folder that node 1 cannot access" in node.stderr
    assert not rows(project.folder / "output/here")


@needs_maxtext
@pytest.mark.full
def test_node_0_meets_nobody_on_a_port_of_another_program(project: Project) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as gRPC does it: both would get connections
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        done = project.run("direct", *TASK, NNODES="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    assert done.returncode == 3, done.stderr
    assert f"node 0 cannot listen on port {port}: Address already in use" in done.stderr
    assert "set MASTER_PORT" in done.stderr


def by_hand(project: Project, first: str, second: str, *words: str) -> list[subprocess.CompletedProcess[str]]:
    """Two nodes, each started by hand, with these run directories."""
    node = {"NNODES": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}

    def start(rank: int, name: str) -> subprocess.CompletedProcess[str]:
        place = {"PRIMUS_RUN_DIR": f"output/{name}", "PRIMUS_RUN_ID": name, "NODE_RANK": str(rank)}
        return project.run("direct", *TASK, *words, **node, **place)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(start, (0, 1), (first, second)))


@needs_maxtext
@pytest.mark.full
def test_a_loss_that_is_no_number_ends_the_run(project: Project) -> None:
    done = project.run("direct", *TASK, "learning_rate=1e30", "steps=20", "enable_checkpointing=false")
    assert done.returncode == 1
    said = re.search(r"the loss is nan at steps (\d+), (\d+), (\d+)", done.stderr)
    assert said, done.stderr[-3000:]
    bad = [int(step) for step in said.groups()]
    assert "Traceback" not in done.stderr
    assert f"WARNING: the loss of step {bad[0]} is nan" in done.stderr
    found = rows(project.newest)
    assert [row["step"] for row in found if row["loss"] is None] == bad
    assert found[-1]["step"] == bad[-1], "the run is over"
    known = json.loads((project.newest / "metadata.json").read_text())
    assert known["status"] == "failed"
    assert said[0] in known["first_failure"]["what"]


@needs_maxtext
@pytest.mark.full
def test_a_setting_of_maxtext_ends_a_run_at_the_first_loss_that_is_no_number(project: Project) -> None:
    words = ("learning_rate=1e30", "steps=20", "enable_checkpointing=false", "on_non_finite=warn")
    done = project.run("direct", *TASK, *words, "abort_on_nan_loss=true")
    assert done.returncode == 1
    assert re.search(r"the loss is nan at step \d+\n", done.stderr), done.stderr[-3000:]


RECORDS = """
import sys
from array_record.python.array_record_module import ArrayRecordWriter
from maxtext.input_pipeline.protos import example_pb2
writer = ArrayRecordWriter(sys.argv[1], "group_size:1")
for number in range(10):
    example = example_pb2.Example()
    text = " ".join(f"word {number * i % 97}" for i in range(100))
    example.features.feature["text"].bytes_list.value.append(text.encode())
    writer.write(example.SerializeToString())
writer.close()
"""
OWN_DATA = (
    "dataset_type=grain",
    "grain_train_files=data-*.array_record",
    "tokenizer_path=tokenizer.llama2",
    "packing=false",
)


@needs_maxtext
@pytest.mark.full
def test_data_of_maxtexts_own_pipeline_that_end_before_the_last_step_end_the_run(project: Project) -> None:
    pytest.importorskip("array_record", reason="array_record is not installed")
    environ = {**project.environ, "JAX_PLATFORMS": "cpu"}
    made = subprocess.run([sys.executable, "-c", RECORDS, "data-1.array_record"], env=environ, cwd=project.folder,
                          text=True, capture_output=True, check=False)  # fmt: skip
    assert made.returncode == 0, made.stderr
    own = EXPERIMENT.replace("    data: {text: text, vocab_size: 512, document_chars: 500}\n", "")
    (project.folder / "own.yaml").write_text(own.replace('{"decoder_block"', '{"vocab_size": 32000, "decoder_block"'))
    words = ("steps=20", "num_epoch=1", "enable_checkpointing=false")
    done = project.run("direct", *TASK[:-1], "own.yaml", *OWN_DATA, *words)
    assert done.returncode == 1, done.stderr[-3000:]
    assert "training ended after step 3 of 20" in done.stderr
    assert "give it more data, raise num_epoch, or ask for fewer steps" in done.stderr
    assert [row["step"] for row in rows(project.newest)] == [1, 2, 3]


@needs_maxtext
@pytest.mark.full
def test_while_the_batch_grows_a_step_counts_the_tokens_that_it_has(project: Project) -> None:
    ramp = ("enable_rampup_batch_size=true", "per_device_batch_size_start=2", "global_rampup_samples=4")
    project("direct", *TASK, *ramp, "exp_name=ramp", "enable_checkpointing=false")
    found = rows(project.folder / "output/ramp")
    assert [row["global_batch_size"] for row in found] == [2, 2, 4, 4]
    assert [row["tokens"] for row in found] == [128, 256, 512, 768]
    assert all(row["tokens_per_second"] * row["step_time_s"] == pytest.approx(64 * row["global_batch_size"])
               for row in found)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lerning_rate=1"], "did you mean 'learning_rate'?"),
        (["ici_tensor_parallelism=3"], "ici_tensor_parallelism=3"),
        (["attention=cudnn_flash_te"], "needs a GPU"),
        (["remat_policy=ful"], "did you mean 'full'?"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_written(
    primus: Run, tmp_path: Path, words: list[str], said: str
) -> None:
    (tmp_path / "exp.yaml").write_text(EXPERIMENT)
    done = primus("direct", *TASK, *words, env={"CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 2
    assert said in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["exp.yaml"]
