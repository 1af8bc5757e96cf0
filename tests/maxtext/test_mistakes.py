"""What MaxText, or this machine, would refuse: `config validate`, a dry run and a launch say so alike."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("primus_maxtext", reason="primus-maxtext needs Python 3.12: hatch run maxtext:test")

from tests.maxtext.conftest import EXPERIMENT
from tests.mistakes import Asker, Mistake, refused_alike

MISTAKES = {
    "devices that do not divide": Mistake("there are 2 devices", words="ici_fsdp_parallelism=3"),
    "a batch that is none": Mistake("are not a whole batch", words="per_device_batch_size=0.3"),
    "heads that do not divide": Mistake("serves as many of them", words="base_num_query_heads=3"),
    "a length that does not divide": Mistake(
        "'max_target_length' is 63", words="ici_context_parallelism=2 max_target_length=63"
    ),
    "no steps": Mistake("'steps' is 0", words="steps=0"),
    "a warm-up longer than the training": Mistake("'warmup_steps_fraction' is 1.5", words="warmup_steps_fraction=1.5"),
    "no number": Mistake("not a finite number", words="learning_rate=.inf"),
    "null for a number": Mistake("'steps' cannot be empty", words="steps=None"),
    "a word without value": Mistake("'--steps' has no value", words="--steps"),
    "a kernel of a GPU": Mistake("needs a GPU", words="attention=cudnn_flash_te"),
    "an unknown model": Mistake("MaxText has no model 'lama'", words="model_name=lama"),
    "two sources of data": Mistake("both set the training data", words="dataset_type=hf"),
    "made-up data beside a text": Mistake("both set the training data", words="dataset_type=synthetic"),
    "no such text": Mistake("nowhere' not found", words="data.text=nowhere", code=3),
    "a typed one of two": Mistake(
        "command line: base_num_kv_heads=3: 'base_num_query_heads' is ", words="base_num_kv_heads=3"
    ),
    "no such checkpoint": Mistake("nowhere' not found", words="load_parameters_path=nowhere", code=3),
    "nobody logs in": Mistake("Weights & Biases is enabled", words="--enable_wandb", code=3),
    "not an experiment's": Mistake("'metrics_file' cannot be set in an experiment", words="metrics_file=m"),
}


@pytest.fixture
def asker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Asker:
    """On two devices."""
    asker = Asker(EXPERIMENT, tmp_path, monkeypatch, capsys)
    (tmp_path / "text").mkdir()
    (tmp_path / "text/a.md").write_text("some text")
    monkeypatch.setenv("GPUS_PER_NODE", "2")
    return asker


@pytest.mark.parametrize("kind", MISTAKES)
def test_validate_a_dry_run_and_a_launch_refuse_alike(asker: Asker, kind: str) -> None:
    refused_alike(asker, MISTAKES[kind])


def test_mistakes_in_settings_data_and_mesh_are_said_at_once(asker: Asker) -> None:
    words = "ici_fsdp_parallelism=3 adam_b1=1 adam_b2=1 learning_rate=.nan stpes=3 data.vocab_size=5 attention=flash_te"
    said = refused_alike(asker, Mistake("7 errors", words=words))
    assert "there is no training data" not in said, "the data are wrong, not missing"


def test_of_an_unknown_model_only_what_was_given_is_judged(asker: Asker) -> None:
    said = refused_alike(asker, Mistake("2 errors", words="model_name=lama adam_b1=2"))
    assert "'adam_b1' is 2" in said


def test_by_a_variable_that_is_not_set_nothing_else_is_judged(asker: Asker) -> None:
    for name in ("data.text", "data.vocab_size", "model.base_emb_dim", "model_name", "steps", "per_device_batch_size"):
        said = refused_alike(asker, Mistake("${UNSET_OF_MINE} is not set", words=f"{name}=${{UNSET_OF_MINE}}"))
        assert said.count("primus: error") == 1, said


def test_no_kind_of_data_leaves_the_section_alone(asker: Asker) -> None:
    said = asker.ask(Mistake("", words="dataset_type=hf dataset_type=null"), launches=False)["config validate"]
    assert (said.code, said.err) == (0, "")


@pytest.mark.parametrize(
    ("words", "errors"),
    [
        ("data.input=text/a.md", ["`data` has no `tokenizer_model`", "no data for the evaluation"]),
        (
            "data.train_data_path=[a] reset_attention_mask=true",
            ["no data for the evaluation", "'data.eod_id' is not set"],
        ),
        ("data.input=text/a.md data.split=9,1", ["`data` has no `tokenizer_model`"]),
    ],
)
def test_an_evaluation_without_data_is_refused_with_what_else_is_wrong_with_them(
    asker: Asker, words: str, errors: list[str]
) -> None:
    none = "data.text=null data.vocab_size=null data.document_chars=null eval_interval=2 eval_steps=2"
    said = refused_alike(asker, Mistake(errors[-1], words=f"{none} {words}"))
    assert [error for error in errors if error not in said] == []
    assert said.count("error: ") == len(errors)
