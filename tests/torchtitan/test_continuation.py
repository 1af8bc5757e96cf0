"""A run that was stopped goes on from its last complete checkpoint, and only where that makes sense."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.planning import changed, not_loadable

from primus_core.errors import ConfigError
from primus_train.backend import BackendPlan

Resolve = Callable[..., BackendPlan]

TEXT = """
model: {family: llama3, dim: 64, n_layers: 4, n_heads: 4}
data: {text: python-stdlib, vocab_size: 512}
training: {steps: 100}
checkpoint: {enable: true}
"""


def earlier_run(resolve: Resolve, folder: Path, text: str, steps: dict[int, str]) -> Callable[[str], tuple[str, ...]]:
    """A run directory as an earlier run left it: checkpoints by step, with the text of their metadata."""
    for step, metadata in steps.items():
        place = folder / "checkpoints" / f"step-{step}"
        place.mkdir(parents=True)
        (place / ".metadata").write_text(metadata)
        (place / "__0_0.distcp").write_text("x")
    config = folder / "config" / "backend_config.json"
    config.parent.mkdir()
    config.write_text(json.dumps(resolve(text).config))
    return lambda pattern: tuple(str(path) for path in sorted(folder.glob(pattern)))


def settings(plan: BackendPlan) -> Any:
    return plan.config["settings"]


def test_the_newest_complete_checkpoint_is_taken(resolve: Resolve, tmp_path: Path) -> None:
    run = tmp_path / "exp_2026_01_01_000000"
    previous = earlier_run(resolve, run, TEXT, {10: "x", 20: "x", 30: ""})
    plan = resolve(TEXT, previous=previous)
    assert settings(plan)["checkpoint.initial_load_path"] == str(run / "checkpoints" / "step-20")
    assert settings(plan)["checkpoint.initial_load_model_only"] is False
    assert plan.loads == (f"{run}/checkpoints/step-20",)
    assert "continues from step 20 of exp_2026_01_01_000000" in plan.notes


def test_profiled_steps_that_are_trained_already_are_told(resolve: Resolve, tmp_path: Path) -> None:
    previous = earlier_run(resolve, tmp_path / "exp_2026_01_01_000000", TEXT, {20: "x"})

    def notes(last: int) -> str:
        cycle = f"enable_profiling: true, profiler_active: 4, profiler_repeat: 1, profile_freq: {last}"
        return "\n".join(resolve(f"{TEXT}profiler: {{{cycle}}}\n", previous=previous).notes)

    assert "no whole trace of steps 19 to 22: training continues behind step 20" in notes(22)
    assert "trace" not in notes(24)


def test_the_step_that_was_asked_for_is_taken_and_the_weights_alone_where_they_are(
    resolve: Resolve, tmp_path: Path
) -> None:
    run = tmp_path / "exp_2026_01_01_000000"
    previous = earlier_run(resolve, run, TEXT, {10: "x", 20: "x"})
    plan = resolve(TEXT, previous=previous, step=10)
    assert settings(plan)["checkpoint.initial_load_path"] == str(run / "checkpoints" / "step-10")
    weights = resolve(TEXT, previous=previous, weights_only=True)
    assert settings(weights)["checkpoint.initial_load_model_only"] is True
    assert (weights.continues, weights.starts_from, weights.loads) == ("", str(run), (f"{run}/checkpoints/step-20",))
    with pytest.raises(ConfigError, match="exp_2026_01_01_000000 has no complete checkpoint of step 15") as refused:
        resolve(TEXT.replace("steps: 100", "steps: 20"), previous=previous, step=15)
    assert refused.value.fix == "choose one: exp_2026_01_01_000000@10"  # beyond 20, there is nothing to train


def test_a_last_checkpoint_of_weights_alone_is_not_continued(resolve: Resolve, tmp_path: Path) -> None:
    """TorchTitan saves the last step so, unless `checkpoint.last_save_model_only` is false."""
    longer = TEXT.replace("steps: 100", "steps: 200")
    plan = resolve(longer, previous=earlier_run(resolve, tmp_path / "r", TEXT, {50: "x", 100: "x"}))
    assert "skips the checkpoint of step 100: it has weights alone (checkpoint.last_save_model_only)" in plan.notes
    with pytest.raises(ConfigError, match="its only checkpoint, of step 100, has weights alone"):
        resolve(longer, previous=earlier_run(resolve, tmp_path / "s", TEXT, {100: "x"}))


@pytest.mark.parametrize("steps", [100, 40])
def test_a_run_that_has_made_all_steps_that_are_asked_for_is_refused(
    resolve: Resolve, tmp_path: Path, steps: int
) -> None:
    """Nobody is to lose its work by a training that begins anew without a word."""
    previous = earlier_run(resolve, tmp_path / "r", TEXT, {90: "x", 100: "x"})
    text = TEXT.replace("steps: 100", f"steps: {steps}")
    if steps == 100:
        assert "continues from step 90 of r" in resolve(text, previous=previous).notes
        (tmp_path / "r/checkpoints/step-90/.metadata").write_text("")
    with pytest.raises(ConfigError) as refused:
        resolve(text, previous=previous)
    assert f"checkpoint of step 100 of r is not before step {steps}, where training ends" in refused.value.what
    assert (
        refused.value.fix
        == "ask for more steps: training.steps=N, above 100\nor start from the first step: --new, without --continue"
    )


def test_the_newest_checkpoint_before_the_end_is_taken_and_later_ones_are_named(
    resolve: Resolve, tmp_path: Path
) -> None:
    previous = earlier_run(resolve, tmp_path / "r", TEXT, {30: "x", 60: "x", 90: "x", 95: ""})
    plan = resolve(TEXT.replace("steps: 100", "steps: 60"), previous=previous)
    assert settings(plan)["checkpoint.initial_load_path"] == str(tmp_path / "r/checkpoints/step-30")
    assert "skips newer checkpoints of r (step 60, 90): training ends at step 60" in plan.notes


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ("n_layers: 4", "n_layers: 2", ["model.sizes.n_layers"]),
        ("python-stdlib", "elsewhere", ["data.text"]),
        ("checkpoint:", "optimizer.lr: 1e-5\ncheckpoint:", ["optimizer.param_groups[0].optimizer_kwargs.lr"]),
        ("checkpoint:", "debug.seed: 7\ncheckpoint:", ["debug.seed"]),
        ("steps: 100}", "steps: 200}\nmetrics.log_freq: 3\ndataloader.num_workers: 2", []),
        ("enable: true", "enable: true, interval: 7, folder: there", []),
        ("checkpoint:", "activation_checkpoint.mode: none\ncheckpoint:", []),
    ],
)
def test_what_changes_the_training_must_not_differ(
    resolve: Resolve, tmp_path: Path, before: str, after: str, names: list[str]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/a.txt").write_text("text")
    run, here = tmp_path / "exp_1", tmp_path / "exp_2"
    previous = earlier_run(lambda text: resolve(text, run=run), run, TEXT, {10: "x"})
    assert before in TEXT
    same = resolve(TEXT, previous=previous, run=here)
    assert (same.continues, changed(run, same, here)) == (str(run), [])
    assert changed(run, resolve(TEXT.replace(before, after), previous=previous, run=here), here) == names


OWN_DATASET = TEXT.replace("data: {text: python-stdlib, vocab_size: 512}\n", "dataloader: {dataset: c4}\n").replace(
    "n_heads: 4", "n_heads: 4, vocab_size: 512"
)


def test_what_a_checkpoint_has_the_form_of_cannot_be_changed(resolve: Resolve, tmp_path: Path) -> None:
    """Also with `--continue`: it would end on every rank, or train a part of the model without a word."""
    run, here = tmp_path / "exp_1", tmp_path / "exp_2"

    def fixed(text: str, before: str, after: str) -> list[str]:
        shutil.rmtree(run, ignore_errors=True)
        previous = earlier_run(lambda text: resolve(text, run=run), run, text, {10: "x"})
        assert before in text
        return not_loadable(run, resolve(text.replace(before, after), previous=previous, run=here), here)

    workers = "checkpoint:", "dataloader.num_workers: 2\ncheckpoint:"
    assert fixed(TEXT, *workers) == []
    assert fixed(OWN_DATASET, *workers) == ["dataloader.num_workers"]
    assert fixed(TEXT, "n_layers: 4", "n_layers: 2") == ["model.sizes.n_layers"]
    assert fixed(TEXT, "checkpoint:", "optimizer: {lr: 1e-5, weight_decay: 0.3, beta2: 0.9}\ncheckpoint:") == []
    name = fixed(TEXT, "checkpoint:", "optimizer.name: Adam\ncheckpoint:")
    assert name == ["optimizer.param_groups[0].optimizer_name"]


def test_another_number_of_data_parallel_ranks_is_refused_with_a_dataset_of_torchtitan(
    resolve: Resolve, tmp_path: Path
) -> None:
    previous = earlier_run(resolve, tmp_path / "r", OWN_DATASET, {10: "x"})
    with pytest.raises(ConfigError, match="step 10 of r: data-parallel ranks there: 1, here: 2"):
        resolve(OWN_DATASET, ranks=2, previous=previous)


def test_another_number_of_data_parallel_ranks_continues_with_data_that_primus_reads(
    resolve: Resolve, tmp_path: Path
) -> None:
    plan = resolve(TEXT, ranks=2, previous=earlier_run(resolve, tmp_path / "r", TEXT, {10: "x"}))
    assert plan.continues == str(tmp_path / "r")


def test_a_checkpoint_without_the_number_of_consumed_samples_is_refused(resolve: Resolve, tmp_path: Path) -> None:
    """As earlier versions of Primus saved it: the place of each rank in TorchTitan's own data set."""
    previous = earlier_run(resolve, tmp_path / "exp_1", TEXT, {10: "x dataloader.dp_rank_0 x"})
    with pytest.raises(ConfigError, match="does not say how many samples were consumed") as error:
        resolve(TEXT, previous=previous)
    assert "exclude_from_loading: [dataloader]" in error.value.fix
    assert error.value.fix.endswith("--new, without --continue")
    plan = resolve(TEXT.replace("enable: true", "enable: true, exclude_from_loading: [dataloader]"), previous=previous)
    assert "continues from step 10 of exp_1" in plan.notes
    later = earlier_run(resolve, tmp_path / "exp_2", TEXT, {20: "x dataloader.consumed x"})
    assert "continues from step 20 of exp_2" in resolve(TEXT, previous=later).notes


def test_the_position_in_the_data_can_be_given_up_to_continue(resolve: Resolve, tmp_path: Path) -> None:
    text = OWN_DATASET.replace("enable: true", "enable: true, exclude_from_loading: [dataloader]")
    plan = resolve(text, ranks=2, previous=earlier_run(resolve, tmp_path / "r", OWN_DATASET, {10: "x"}))
    assert "checkpoint.initial_load_path" in settings(plan)


def test_a_checkpoint_that_a_person_names_is_taken(resolve: Resolve, tmp_path: Path) -> None:
    text = TEXT.replace("enable: true", "enable: true, initial_load_path: mine/step-5")
    plan = resolve(text, previous=earlier_run(resolve, tmp_path / "r", TEXT, {10: "x"}))
    assert settings(plan)["checkpoint.initial_load_path"] == str(tmp_path / "mine" / "step-5")
    assert plan.loads == (f"{tmp_path}/mine/step-5",)


def test_a_checkpoint_that_torchtitan_finds_itself_in_a_folder_of_several_runs_must_be_trusted(
    resolve: Resolve, tmp_path: Path
) -> None:
    earlier_run(resolve, tmp_path / "r", TEXT, {10: "x", 20: "x"})
    plan = resolve(TEXT.replace("enable: true", f"enable: true, folder: {tmp_path}/r/checkpoints"))
    assert plan.loads == (f"{tmp_path}/r/checkpoints/step-20",)


def test_continuation_can_be_switched_off(resolve: Resolve, tmp_path: Path) -> None:
    previous = earlier_run(resolve, tmp_path / "r", TEXT, {10: "x"})
    assert "checkpoint.initial_load_path" not in settings(
        resolve(TEXT + "auto_continue_train: false", previous=previous)
    )


def test_without_checkpoints_nothing_is_looked_for(resolve: Resolve) -> None:
    def previous(pattern: str) -> tuple[str, ...]:
        raise AssertionError("asked for earlier runs")

    resolve(TEXT.replace("enable: true", "enable: false"), previous=previous)


@pytest.mark.parametrize(
    ("settings", "files", "needed", "fix"),
    [
        ("initial_load_path: mine", (), "mine", "it is one checkpoint (step-N)"),
        ("initial_load_path: mine", ("mine/a.safetensors",), "mine/.metadata", "checkpoint.initial_load_in_hf=true"),
        (
            "initial_load_path: meta-llama/Llama-3.1-8B, initial_load_in_hf: true",
            (),
            "meta-llama/Llama-3.1-8B",
            "hf download meta-llama/Llama-3.1-8B --include '*.safetensors*' --local-dir ",
        ),
        (
            "initial_load_path: ., initial_load_in_hf: true",
            (),
            "*.safetensors",
            "name the folder of the model's safetensors",
        ),
    ],
)
def test_weights_to_start_from_must_be_there_in_the_form_that_is_asked_for(
    settings: str, files: tuple[str, ...], needed: str, fix: str, resolve: Resolve, tmp_path: Path
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    plan = resolve(TEXT.replace("enable: true", f"enable: true, {settings}"))
    assert [fix in row.fix for row in plan.requires if row.name.endswith(needed)] == [True]
