"""What Megatron, or this machine, would refuse: `config validate`, a dry run and a launch say so alike."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("primus_megatron", reason="primus-megatron needs Python 3.12: hatch run megatron:test")

from tests.megatron.conftest import tiny
from tests.mistakes import Asker, Mistake, refused_alike

from primus_core.cli.main import main

MODEL, *SETTINGS = tiny().splitlines()
GOOD = "\n".join(
    ["exp_name: tiny", "modules:", "  pre_trainer:", "    framework: megatron", f"    {MODEL}", "    overrides:"]
    + [f"      {line}" for line in SETTINGS]
)
MADE_UP = "      mock_data: true\n      vocab_size: 511\n"

MISTAKES = {
    "ranks that do not divide": Mistake("= 3 does not divide 2 ranks", words="tensor_model_parallel_size=3"),
    "a batch that does not divide": Mistake("global_batch_size 6 is not a multiple of 4", words="global_batch_size=6"),
    "heads that do not divide": Mistake("num_attention_heads 5 does not divide", words="num_attention_heads=5"),
    "layers that do not divide": Mistake(
        "does not divide num_layers 3", words="pipeline_model_parallel_size=2 num_layers=3"
    ),
    "experts of no model": Mistake("for a model without experts", words="expert_model_parallel_size=2"),
    "a warm-up as long as the training": Mistake(
        "lr_warmup_iters 4 is not less than train_iters 4", words="lr_warmup_iters=4"
    ),
    "two precisions": Mistake("'bf16' and 'fp16' are both true", words="bf16=true fp16=true"),
    "a rate that grows": Mistake("min_lr 1 is above lr", words="min_lr=1"),
    "a warm-up that is all": Mistake("must be at least 0 and below 1", words="lr_warmup_fraction=1.0"),
    "a ramp that is ignored": Mistake("Megatron has ignored it since 0.18", words="rampup_batch_size=[2,2,100]"),
    "layers of a GPU": Mistake("'transformer_impl' needs a GPU", words="transformer_impl=transformer_engine"),
    "no end of a schedule": Mistake("has no 'lr_wsd_decay_iters'", words="lr_decay_style=WSD"),
    "no number": Mistake("not a finite number", words="lr=1e999"),
    "null for a number": Mistake("'train_iters' is not set", words="train_iters=None"),
    "a word without value": Mistake("'--train_iters' has no value", words="--train_iters"),
    "a kernel of a GPU": Mistake("needs a GPU", words="--masked_softmax_fusion"),
    "eight bits": Mistake("'fp8' needs Transformer Engine", words="fp8=hybrid"),
    "nothing to train on": Mistake("there is no training data", words="mock_data=false"),
    "no such text": Mistake("nowhere' not found", (MADE_UP, ""), words="data.text=nowhere data.vocab_size=512", code=3),
    "no such data": Mistake(
        "nowhere.bin' not found", words="mock_data=false tokenizer_type=NullTokenizer data_path=nowhere", code=3
    ),
    "no such checkpoint": Mistake("nowhere' not found", words="load=nowhere", code=3),
    "no folder to save in": Mistake("is not writable", words="save=exp.yaml/ckpt", code=3),
    "nobody logs in": Mistake("Weights & Biases is enabled", words="wandb_project=mine", code=3),
    "not an experiment's": Mistake("'rank' cannot be set in an experiment", words="rank=0"),
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


def test_mistakes_in_model_settings_schedule_and_layout_are_said_at_once(asker: Asker) -> None:
    words = "num_layers=3 pipeline_model_parallel_size=2 global_batch_size=7 lr=.nan lr_warmup_iters=9 tran_iters=1"
    words += " num_attention_heads=5 masked_softmax_fusion=true rank=0"
    said = refused_alike(asker, Mistake("8 errors", words=words))
    assert "does not divide num_layers 3" in said
    assert "is not less than train_iters" not in said, (
        "train_iters is misspelt, so nobody knows how long the training is"
    )


def test_a_word_alone_is_true(asker: Asker) -> None:
    answers = asker.ask(Mistake("", words="--mock_data --attention_softmax_in_fp32 --lr=1 --min_lr 2"))
    assert all("min_lr 2 is above lr 1" in answer.err for answer in answers.values())
    assert all("attention_softmax_in_fp32" not in answer.err for answer in answers.values())


def test_an_experiment_for_gpus_is_told_to_name_them(asker: Asker) -> None:
    asker.monkeypatch.delenv("GPUS_PER_NODE")
    words = "masked_softmax_fusion=true global_batch_size=16 lr=.nan"
    said = asker.ask(Mistake("", words=words))["config validate"].err
    assert f"name the machines of the training: primus config validate exp.yaml --gpu MI300X {words}\n" in said
    assert "on a CPU, set" not in said
    assert "give it a number that is finite" in said, "it is wrong on every machine"


def test_a_look_at_an_experiment_for_gpus_is_told_to_name_them_too(
    asker: Asker, capsys: pytest.CaptureFixture[str]
) -> None:
    asker.monkeypatch.delenv("GPUS_PER_NODE")
    (asker.folder / "exp.yaml").write_text(GOOD)
    words = ["masked_softmax_fusion=true", "global_batch_size=16"]
    assert main(["config", "show", "exp.yaml", "--resolved", *words]) == 2
    asked = f"primus config show exp.yaml --resolved --gpu MI300X {' '.join(words)}\n"
    assert asked in capsys.readouterr().err
    assert main(["config", "show", "exp.yaml", "--resolved", "--gpu", "MI300X", *words]) == 0, "it is not refused there"
    assert main(["config", "validate", "exp.yaml", words[0]]) == 2
    assert "--gpu" not in capsys.readouterr().err, "there, the batch could not be divided"


def test_a_size_of_the_model_that_overrides_say_is_shown_as_from_there(
    asker: Asker, capsys: pytest.CaptureFixture[str]
) -> None:
    (asker.folder / "exp.yaml").write_text(GOOD.replace("overrides:\n", "overrides:\n      num_layers: 2\n"))
    assert main(["config", "show", "exp.yaml", "--resolved", "--json", "num_attention_heads=8"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows["model.num_layers"] == rows["num_layers"] == {"value": 2, "origin": "exp.yaml:7"}
    assert rows["model.num_attention_heads"] == {"value": 8, "origin": "command line: num_attention_heads=8"}
    assert rows["model.hidden_size"] == {"value": 64, "origin": "exp.yaml:5"}


def test_a_layout_for_more_nodes_is_judged_on_so_many_and_says_why(
    asker: Asker, capsys: pytest.CaptureFixture[str]
) -> None:
    asker.monkeypatch.delenv("GPUS_PER_NODE")
    words = ["tensor_model_parallel_size=8", "pipeline_model_parallel_size=2"]
    assert main(["config", "validate", "template:megatron/llama3.1_8B/MI300X", *words]) == 0
    why = "tensor 8 x pipeline 2 x context 1 = 16 does not divide 8 ranks"
    assert f"note: {why}: validated for 2 nodes (--nodes N for another number)" in capsys.readouterr().out


def test_by_a_variable_that_is_not_set_nothing_else_is_judged(asker: Asker) -> None:
    for name in ("data.text", "model.num_layers", "mock_data", "vocab_size", "train_iters", "lr", "seq_length"):
        said = refused_alike(asker, Mistake("${UNSET_OF_MINE} is not set", words=f"{name}=${{UNSET_OF_MINE}}"))
        assert said.count("primus: error") == 1, said


SWITCHED_OFF = {
    "--no-bias-swiglu-fusion": "bias_swiglu_fusion=false",
    "--disable-bias-linear": "add_bias_linear=false",
    "--no-rope-fusion": "apply_rope_fusion=false",
    "no_rope_fusion=false": "set its opposite, 'apply_rope_fusion'",
    "load_optim=true": "remove it",
}


@pytest.mark.parametrize("typed", SWITCHED_OFF)
def test_no_name_is_answered_with_one_that_says_the_opposite(
    asker: Asker, typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (asker.folder / "exp.yaml").write_text(GOOD)
    assert main(["direct", "--dry-run", "--", "train", "pretrain", "--config", "exp.yaml", typed]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(SWITCHED_OFF[typed])


def test_what_null_unsets_is_shown_as_the_default_that_it_becomes(
    asker: Asker, capsys: pytest.CaptureFixture[str]
) -> None:
    (asker.folder / "exp.yaml").write_text(GOOD)
    assert main(["config", "show", "exp.yaml", "--resolved", "optimizer=None"]) == 0
    assert re.search(
        r"^optimizer +adam +default of megatron \S+, for command line: optimizer=None$", capsys.readouterr().out, re.M
    )
