"""What TorchTitan, or this machine, would refuse: `config validate`, a dry run and a launch say so alike."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import ROOT, Run
from tests.mistakes import Asker, Mistake, refused_alike

from primus_core.cli.main import main

GOOD = """\
exp_name: tiny
modules:
  pre_trainer:
    framework: torchtitan
    model: {family: llama3, dim: 64, n_layers: 4, n_heads: 4, n_kv_heads: 2}
    data: {text: python-stdlib, vocab_size: 512}
    overrides:
      training: {steps: 4, seq_len: 64, local_batch_size: 2}
"""
DATA, MODEL = "{text: python-stdlib, vocab_size: 512}", "n_heads: 4, n_kv_heads: 2"
OF_C4 = "{}\n    overrides: {dataloader.dataset: c4, dataloader.dataset_path: nowhere}"

MISTAKES = {
    "weights that nothing loads": Mistake(
        "'checkpoint.initial_load_path' has no effect", words="checkpoint.initial_load_path=x checkpoint.enable=false"
    ),
    "ranks that do not divide": Mistake("do not make 2 ranks", words="parallelism.tensor_parallel_degree=3"),
    "a batch that does not divide": Mistake("not a multiple of 4", words="training.global_batch_size=6"),
    "heads that do not divide": Mistake(
        "does not divide n_kv_heads 1",
        (MODEL, "n_heads: 4, n_kv_heads: 1"),
        words="parallelism.tensor_parallel_degree=2",
    ),
    "a sequence that cannot be spread": Mistake("blocks of 128", words="parallelism.context_parallel_degree=2"),
    "heads that share nothing": Mistake("4 attention heads cannot share 3", (MODEL, "n_heads: 4, n_kv_heads: 3")),
    "too few layers": Mistake(
        "too few for",
        words="parallelism.pipeline_parallel_degree=2 model.n_layers=1 parallelism.pipeline_parallel_schedule=Interleaved1F1B",
    ),
    "no steps": Mistake("must be at least 1", words="training.steps=0"),
    "no number": Mistake("not a finite number", words="optimizer.lr=.nan"),
    "null for a number": Mistake("'training.steps' cannot be empty", words="training.steps=None"),
    "a word without value": Mistake("'--training.steps' has no value", words="--training.steps"),
    "a value and settings": Mistake("'training' has a value, and settings", words="training=1 training.steps=2"),
    "two vocabularies": Mistake("data.vocab_size is 512, and model.vocab_size is 500", words="model.vocab_size=500"),
    "no such checkpoint": Mistake(
        "nowhere' not found", words="checkpoint.enable=true checkpoint.initial_load_path=nowhere", code=3
    ),
    "no folder to save in": Mistake(
        "is not writable", words="checkpoint.enable=true checkpoint.folder=/proc/version/saved", code=3
    ),
    "no such text": Mistake("nowhere' not found", (DATA, "{text: nowhere, vocab_size: 512}"), code=3),
    "nobody logs in": Mistake("Weights & Biases is enabled", words="metrics.enable_wandb=true", code=3),
    "no folder to write in": Mistake("is not writable", words="data.cache=exp.yaml/cache", code=3),
    "a compiled kernel without compiling": Mistake(
        "works on a compiled model only", words="compile.enable_async_tensor_parallel=true compile.enable=false"
    ),
    "a setting that is gone": Mistake("was removed from TorchTitan", words="model.converters=[float8]"),
}


@pytest.fixture
def asker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Asker:
    """On two ranks."""
    asker = Asker(GOOD, tmp_path, monkeypatch, capsys)
    monkeypatch.setenv("GPUS_PER_NODE", "2")
    return asker


@pytest.mark.parametrize("kind", MISTAKES)
def test_validate_a_dry_run_and_a_launch_refuse_alike(asker: Asker, kind: str) -> None:
    refused_alike(asker, MISTAKES[kind])


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("max_steps=2", "{} training.steps=2"),
        ("--trainer.max_steps 2", "{} --training.steps 2"),
        ("optimiser.lr=1e-3", "{} optimizer.lr=1e-3"),
        ("validator.frequency=3", "{} validator.freq=3"),
        ("env.NCCL_DEBUG=INFO", "primus direct --dry-run --env NCCL_DEBUG=INFO -- train pretrain --config exp.yaml"),
    ],
)
def test_a_setting_of_another_name_is_answered_with_the_command_that_has_the_right_one(
    asker: Asker, capsys: pytest.CaptureFixture[str], typed: str, meant: str
) -> None:
    asker.monkeypatch.delenv("GPUS_PER_NODE")
    (asker.folder / "exp.yaml").write_text(GOOD)
    command = ["direct", "--dry-run", "--", "train", "pretrain", "--config", "exp.yaml"]
    assert main([*command, *typed.split()]) == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert last.strip() == meant.format(f"primus {' '.join(command)}")
    assert main(last.split()[1:]) == 0


@pytest.mark.parametrize("typed", ["data.vocab_size=500", "--data.vocab_size=500", "--data.vocab_size 500"])
def test_a_vocabulary_beside_that_of_the_model_is_answered_with_both_settings(
    asker: Asker, capsys: pytest.CaptureFixture[str], typed: str
) -> None:
    sizes = "dim: 64, n_layers: 4, n_heads: 4, n_kv_heads: 2"
    (asker.folder / "exp.yaml").write_text(GOOD.replace(sizes, "flavor: debugmodel"))
    assert main(["config", "validate", "exp.yaml", *typed.split()]) == 2
    last = capsys.readouterr().err.splitlines()[-1].strip()
    assert last.startswith("primus config validate exp.yaml ")
    assert main(last.split()[1:]) == 0


def test_a_model_of_its_own_beside_a_named_one_is_one_error(asker: Asker, capsys: pytest.CaptureFixture[str]) -> None:
    quickstart = str(ROOT / "examples/quickstart.yaml")
    assert main(["config", "validate", quickstart, "model=llama3_8B"]) == 2
    said = capsys.readouterr().err
    assert said.count("primus: error: ") == 1
    assert "the experiment has a model of its own, beside model=llama3_8B" in said


@pytest.mark.parametrize("key", ["modle", "models", "Model"])
def test_a_misspelt_section_of_the_model_is_one_error(
    asker: Asker, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    text = (ROOT / "examples/quickstart.yaml").read_text(encoding="utf-8").replace("model:", f"{key}:")
    (asker.folder / "exp.yaml").write_text(text, encoding="utf-8")
    assert main(["config", "validate", "exp.yaml"]) == 2
    said = capsys.readouterr().err
    assert said.count("primus: error: ") == 1
    assert said.endswith(f"TorchTitan has no setting '{key}'\n  fix: did you mean 'model'?\n")


def test_a_variable_among_settings_is_no_option_of_a_command_without_a_runtime(
    asker: Asker, capsys: pytest.CaptureFixture[str]
) -> None:
    (asker.folder / "exp.yaml").write_text(GOOD)
    assert main(["config", "validate", "exp.yaml", "env.NCCL_DEBUG=INFO"]) == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert last == "  fix: variables are options of the runtime: --env NCCL_DEBUG=VALUE"


def test_an_experiment_behind_the_option_of_another_tool_is_answered_with_the_command(
    asker: Asker, capsys: pytest.CaptureFixture[str]
) -> None:
    asker.monkeypatch.delenv("GPUS_PER_NODE")
    (asker.folder / "exp.yaml").write_text(GOOD)
    for typed in ("--cfg exp.yaml", "--recipe=exp.yaml"):
        assert main(["direct", "--", "train", "pretrain", *typed.split(), "training.steps=2"]) == 2
        whole = "did you mean: primus direct -- train pretrain --config exp.yaml training.steps=2"
        assert whole in capsys.readouterr().err


def test_mistakes_in_model_data_settings_and_layout_are_said_at_once(asker: Asker) -> None:
    text = """\
exp_name: tiny
modules:
  pre_trainer:
    framework: torchtitan
    model: {family: llama3, dim: 64, n_layers: 4, n_heads: 4, n_kv_heads: 3}
    data: {text: nowhere, vocab_size: 100}
    overrides:
      training: {stpes: 4, seq_len: 64, local_batch_size: 2, global_batch_size: 7}
      optimizer.lr: .inf
      checkpoint.keep_latest_k: 1
"""
    said = refused_alike(asker, Mistake("6 errors", (GOOD, text), words="parallelism.tensor_parallel_degree=2"))
    pieces = ("cannot share 3", "must be at least 258", "did you mean 'training.steps'?", "not a multiple of 2")
    assert all(piece in said for piece in (*pieces, "not a finite number", "'checkpoint.keep_latest_k' cannot be 1"))


def test_mistakes_in_heads_are_said_at_once_at_the_place_that_was_typed(asker: Asker) -> None:
    said = refused_alike(asker, Mistake("2 errors", words="model.n_heads=7"))
    assert said.count("command line: model.n_heads=7: ") == 2
    assert "cannot be split into 7 heads" in said
    assert "fix: model.n_heads=8 model.n_kv_heads=2" in said


def test_what_is_missing_is_said_beside_other_mistakes(asker: Asker) -> None:
    change = (DATA, "{text: nowhere, vocab_size: 512}")
    said = refused_alike(asker, Mistake("2 errors", change, words="training.steps=0"))
    assert "nowhere' not found" in said


@pytest.mark.parametrize("said", ["key", "offline", "experiment", "netrc"])
def test_who_says_who_logs_in_may_report(asker: Asker, said: str) -> None:
    asker.monkeypatch.setenv("OMP_NUM_THREADS", "1")
    if said == "key":
        asker.monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    if said == "offline":
        asker.monkeypatch.setenv("WANDB_MODE", "offline")
    if said == "netrc":
        (asker.folder / ".netrc").write_text("machine api.wandb.ai\n  login user\n")
    change = ("exp_name", "env: {WANDB_MODE: offline}\nexp_name") if said == "experiment" else ("", "")
    answers = asker.ask(Mistake("", change, words="metrics.enable_wandb=true"), launches=False)
    assert {answer.code for answer in answers.values()} == {0}


def test_where_a_hook_might_say_who_logs_in_and_says_it_not_the_launch_ends(
    asker: Asker, capsys: pytest.CaptureFixture[str]
) -> None:
    (asker.folder / "hooks").mkdir()
    (asker.folder / "hooks/01.sh").write_text("true\n")
    (asker.folder / "exp.yaml").write_text(GOOD)
    words = ["direct", "--", "train", "pretrain", "--config", "exp.yaml", "metrics.enable_wandb=true"]
    assert main(words) == 3
    assert "Weights & Biases is enabled, but no login for it was found" in capsys.readouterr().err


def test_another_login_does_not_count(asker: Asker) -> None:
    (asker.folder / ".netrc").write_text("machine example.org\n  login user\n")
    refused_alike(asker, Mistake("Weights & Biases is enabled", words="metrics.enable_wandb=true", code=3))


@pytest.mark.full
def test_null_is_written_in_three_ways(asker: Asker) -> None:
    for word in ("None", "null", "~"):
        refused_alike(asker, Mistake("'training.steps' cannot be empty", words=f"training.steps={word}"))
        change = ("overrides:", f"overrides:\n      metrics.log_freq: {word}")
        refused_alike(asker, Mistake("exp.yaml:8: 'metrics.log_freq' cannot be empty", change))


def test_by_a_variable_that_is_not_set_nothing_else_is_judged(asker: Asker) -> None:
    for name in ("data.text", "data.vocab_size", "model.n_layers", "model.family", "training.seq_len"):
        said = refused_alike(asker, Mistake("${UNSET_OF_MINE} is not set", words=f"{name}=${{UNSET_OF_MINE}}"))
        assert said.count("primus: error") == 1, said


def test_a_torch_with_which_torchtitan_cannot_be_imported_is_refused(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "exp.yaml").write_text(GOOD)
    older = tmp_path / "older/torch-2.11.0.dist-info"
    older.mkdir(parents=True)
    (older / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0\n")
    words = ("direct", "--dry-run", "--", "train", "pretrain", "--config", "exp.yaml")
    done = primus(*words, env={"PYTHONPATH": str(older.parent)})
    assert done.returncode == 3
    assert "TorchTitan 0.3 cannot be imported with torch 2.11.0" in done.stderr
