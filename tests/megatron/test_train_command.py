"""`primus direct -- train pretrain` with Megatron: the real command, on made-up tokens and on text."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("primus_megatron", reason="primus-megatron needs Python 3.12")
pytest.importorskip("megatron.training", reason="megatron-core is not installed")

from tests.conftest import ROOT, Run, wait_until
from tests.indexed_files import write_indexed
from tests.megatron.conftest import Row, losses

from primus_core.journal import summary

pytestmark = [pytest.mark.torch, pytest.mark.full]

EXAMPLES = ROOT / "examples/megatron"
CPU = {"CUDA_VISIBLE_DEVICES": "", "GPUS_PER_NODE": "1"}


def rows(run: Path) -> list[Row]:
    """The steps so far."""
    return summary.read(str(run / "metrics.jsonl"))


def test_a_small_llama_trains_on_real_text(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    for number in range(60):
        lines = (f"word {number * i % 97} follows word {i % 13}\n" for i in range(300))
        (tmp_path / f"text/{number}.md").write_text("".join(lines))
    words = ["data.text=text", "data.vocab_size=320", "data.cache=cache", "seq_length=64", "train_iters=20"]
    words += ["lr_warmup_iters=2", "eval_interval=20"]
    done = primus(
        "direct", "--", "train", "pretrain", "--config", str(EXAMPLES / "quickstart-cpu.yaml"), *words, env=CPU
    )
    assert done.returncode == 0, done.stderr[-3000:]
    run = tmp_path / "output/megatron-quickstart"
    assert losses(rows(run))[-1] < losses(rows(run))[0] - 1
    assert (run / "data/train.idx").read_bytes().startswith(b"MMIDIDX")
    assert "iteration 20/20 | elapsed time per iteration (ms):" in (run / "logs/rank_0.log").read_text()
    assert "iteration 20/20 | validation loss: " in done.stdout


@pytest.mark.smoke
def test_sigterm_saves_and_the_next_start_goes_on_from_there(
    primus: Run, tmp_path: Path, clean_environ: dict[str, str]
) -> None:
    command = ["direct", "--grace-period", "90", "--", "train", "pretrain"]  # a busy machine takes long to save
    command += ["--config", str(EXAMPLES / "tiny-cpu.yaml"), "train_iters=5000", "save_interval=5000"]
    process = subprocess.Popen([str(Path(sys.executable).with_name("primus")), *command], cwd=tmp_path,
                               env={**clean_environ, **CPU}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    run = tmp_path / "output/megatron-tiny"
    wait_until(lambda: len(rows(run)) >= 5 or process.poll() is not None, 240)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 143
    last = rows(run)[-1]["step"]
    assert [path.name for path in (run / "checkpoints").glob("iter_*")] == [f"iter_{last:07}"]
    command = [*command[:-2], f"train_iters={last + 2}", "save_interval=5000"]
    done = primus(*command, env=CPU)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"continues from iteration {last} of megatron-tiny_" in done.stderr
    assert [row["step"] for row in rows(run)] == [last + 1, last + 2]


ON_FILES = ["mock_data=false", "tokenizer_type=NullTokenizer"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([*ON_FILES, "train_data_path=absent"], 3, "file '{here}/absent.bin' not found"),
        ([*ON_FILES, "train_data_path=corpus.bin"], 2, "Megatron adds .bin and .idx itself"),
        ([*ON_FILES, "train_data_path=empty"], 3, "0 sequences in 0 documents: it is empty"),
        ([*ON_FILES, "train_data_path=cut"], 3, "cut.bin has 100 bytes, but its index lists 200: it was cut off"),
        (["load=absent"], 3, "file '{here}/absent' not found"),
        (["load=file"], 3, "'load: {here}/file' cannot be loaded\n  why: it is not a folder"),
        (["save=file/below"], 3, "folder '{here}/file/below' is not writable"),
        (["backend_path=empty_folder"], 3, "'empty_folder' contains no Megatron"),
        (["enable_primus_turbo=true", "use_turbo_attention=true"], 3, "Python module 'primus_turbo' not found"),
        (["tensor_model_parallel_size=2"], 2, "= 2 does not divide 1 rank"),
        (["train_itres=2"], 2, "did you mean 'train_iters'?"),
    ],
)
def test_what_is_wrong_or_missing_is_told_before_the_start(
    primus: Run, tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    for name, documents in {"corpus": [[1] * 100], "empty": [], "cut": [[1] * 100]}.items():
        write_indexed(tmp_path / name, documents)
    os.truncate(tmp_path / "cut.bin", 100)
    (tmp_path / "file").write_text("text")
    done = primus("direct", "--", "train", "pretrain", "--config", str(EXAMPLES / "tiny-cpu.yaml"), *words, env=CPU)
    assert done.returncode == code, done.stderr
    assert said.format(here=tmp_path) in done.stderr
    assert "fix: " in done.stderr
    assert not (tmp_path / "output").exists()


def test_what_megatron_itself_refuses_is_one_message(primus: Run) -> None:
    config = ("direct", "--", "train", "pretrain", "--config", str(EXAMPLES / "tiny-cpu.yaml"))
    done = primus(*config, "distribute_saved_activations=true", env=CPU)
    assert done.returncode != 0
    assert "Megatron rejects these settings" in done.stderr
    assert "Traceback" not in done.stderr


def test_tensorboard_and_wandb_get_losses_without_a_network(primus: Run, tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="no tensorboard")
    words = ["wandb_project=mine", "train_iters=4", "save_interval=4", "eval_interval=2", "eval_iters=1"]
    config = ("direct", "--", "train", "pretrain", "--config", str(EXAMPLES / "tiny-cpu.yaml"))
    done = primus(*config, *words, env=CPU | {"WANDB_MODE": "offline"})
    assert done.returncode == 0, done.stderr[-3000:]
    assert "TensorBoard is enabled" in done.stderr
    run = tmp_path / "output/megatron-tiny"
    written = events.EventAccumulator(str(run / "tensorboard"))
    written.Reload()
    assert [point.value for point in written.Scalars("lm loss")] == pytest.approx(losses(rows(run)))
    assert {point.step for point in written.Scalars("lm loss validation")} == {2, 4}
    [kept] = (run / "wandb").glob("wandb/offline-run-*/run-*.wandb")
    text = kept.read_bytes()
    assert b"lm loss" in text
    assert b"lm loss validation" in text
