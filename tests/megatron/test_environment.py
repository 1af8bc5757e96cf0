"""What this machine, its packages and its files cannot do is said before any rank starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("primus_megatron", reason="primus-megatron needs Python 3.12: hatch run megatron:test")

from tests.conftest import ROOT, Run
from tests.indexed_files import write_indexed
from tests.megatron.conftest import tiny
from tests.planning import Resolve

from primus_core.errors import ConfigError, MachineError
from primus_machine.packages import version_of

CPU = {"CUDA_VISIBLE_DEVICES": "", "GPUS_PER_NODE": "1"}
ON_FILES = {"mock_data": None, "tokenizer_type": "NullTokenizer"}


def needs(resolve: Resolve, **changes: Any) -> dict[str, str]:
    """What a run on a GPU needs, and what to do where it is missing."""
    return {need.name: need.fix for need in resolve(tiny(**changes), gpus=1).requires}


@pytest.mark.skipif(bool(version_of("transformer-engine")), reason="Transformer Engine is installed")
def test_a_setting_that_needs_missing_kernels_needs_them_at_the_start(resolve: Resolve) -> None:
    assert needs(resolve, fp8="hybrid")["transformer_engine"] == "install Transformer Engine, or disable fp8"
    fused = needs(resolve, gradient_accumulation_fusion=True)["fused_weight_gradient_mlp_cuda"]
    assert fused == "install APEX with its extensions, or gradient_accumulation_fusion: false"
    assert "transformer_engine" in needs(resolve, transformer_impl="transformer_engine")
    notes = " ".join(resolve(gpus=1).notes)
    assert "transformer_impl is local: Transformer Engine is not installed" in notes
    assert "gradient_accumulation_fusion is disabled: APEX's fused_weight_gradient_mlp_cuda is not installed" in notes
    assert "apply_rope_fusion is disabled: Transformer Engine is not installed" in notes
    fused = needs(resolve, moe_permute_fusion=True, num_experts=4)["transformer_engine"]
    assert fused == "install Transformer Engine, or moe_permute_fusion: false"
    assert "apply_rope_fusion" not in " ".join(resolve(tiny(position_embedding_type="none"), gpus=1).notes)


def test_local_layers_and_their_lack_are_a_contradiction(resolve: Resolve) -> None:
    with pytest.raises(ConfigError, match=r"settings\.yaml:\d+: 'fp8' needs Transformer Engine"):
        resolve(tiny(fp8="hybrid", transformer_impl="local"), gpus=1)


@pytest.mark.skipif(not version_of("megatron-core"), reason="which Megatron it will be is not known without one")
def test_the_cross_entropy_that_a_version_refuses_is_refused_before(resolve: Resolve) -> None:
    text = tiny(cross_entropy_loss_fusion=True, cross_entropy_fusion_impl="te")
    if version_of("megatron-core").startswith("0.17."):
        assert "transformer_engine" in {need.name for need in resolve(text, gpus=1).requires}
    else:
        with pytest.raises(MachineError, match=r"settings\.yaml:\d+: .*rejected by Megatron since 0\.18") as caught:
            resolve(text, gpus=1)
        assert "native" in caught.value.fix


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"use_turbo_attention": True, "attention_dropout": 0.1},
            (
                "use_turbo_attention is ignored: 'attention_dropout' is 0.1, and Primus-Turbo's attention does not "
                "support dropout; Megatron's own computes the same"
            ),
        ),
        (
            {"use_turbo_grouped_mlp": True, "num_experts": 4},
            "use_turbo_grouped_mlp is ignored: Megatron's own grouped GEMM computes the same",
        ),
    ],
)
def test_what_primus_turbo_cannot_do_megatron_does_and_a_note_says_so(
    resolve: Resolve, changes: dict[str, Any], expected: str
) -> None:
    assert expected in resolve(tiny(enable_primus_turbo=True, **changes), gpus=1).notes


def data(folder: Path, documents: list[list[int]]) -> Path:
    return Path(write_indexed(folder / "corpus", documents))


def cut(path: Path, size: int) -> None:
    os.truncate(path, size)


@pytest.mark.parametrize(
    ("break_it", "expected"),
    [
        (lambda prefix: cut(prefix.with_suffix(".bin"), 10), "corpus.bin has 10 bytes, but its index lists 400"),
        (lambda prefix: cut(prefix.with_suffix(".idx"), 50), "corpus.idx has 50 bytes of 82: it was cut off"),
        (lambda prefix: cut(prefix.with_suffix(".idx"), 10), "corpus.idx has 10 bytes: it was cut off"),
        (lambda prefix: prefix.with_suffix(".idx").write_text("text " * 20), "not an index of Megatron"),
        (lambda prefix: data(prefix.parent, []), "0 sequences in 0 documents: it is empty"),
        (lambda prefix: data(prefix.parent, [[], []]), "0 sequences in 2 documents: it is empty"),
    ],
)
def test_data_that_cannot_be_trained_on_is_refused(
    resolve: Resolve, tmp_path: Path, break_it: Any, expected: str
) -> None:
    prefix = data(tmp_path, [[1] * 100, [2] * 100])
    resolve(tiny(**ON_FILES, train_data_path="corpus"))
    break_it(prefix)
    with pytest.raises(MachineError, match=rf"settings\.yaml:\d+: the data '{prefix}' cannot be trained on") as caught:
        resolve(tiny(**ON_FILES, train_data_path="corpus"))
    assert expected in caught.value.why
    assert "correct 'train_data_path'" in caught.value.fix


def checkpoint(folder: Path, *iterations: int) -> Path:
    for number in iterations:
        path = folder / f"iter_{number:07}"
        path.mkdir(parents=True)
        (path / "part").write_text("weights")
        (path / "primus_sizes.json").write_text('{"part": 7}')
        (folder / "latest_checkpointed_iteration.txt").write_text(str(number))
    return folder


@pytest.mark.parametrize(
    ("break_it", "why", "fix"),
    [
        (
            lambda kept: (kept / "latest_checkpointed_iteration.txt").unlink(),
            "which names the newest checkpoint",
            "=4",
        ),
        (lambda kept: (kept / "latest_checkpointed_iteration.txt").write_text("6"), "no iter_0000006", "ckpt_step=4"),
        (lambda kept: (kept / "iter_0000004/part").write_text(""), "iter_0000004 was cut off", "ckpt_step=2"),
        (
            lambda kept: kept.rename(kept.with_name("moved")) and kept.write_text(""),
            "it is not a folder",
            "correct 'load'",
        ),
    ],
)
def test_a_checkpoint_that_cannot_be_loaded_is_refused(
    resolve: Resolve, tmp_path: Path, break_it: Any, why: str, fix: str
) -> None:
    kept = checkpoint(tmp_path / "kept", 2, 4)
    assert resolve(tiny(load="kept")).config["settings"]["load"] == str(kept)
    break_it(kept)
    with pytest.raises(MachineError, match=rf"settings\.yaml:\d+: 'load: {kept}' cannot be loaded") as caught:
        resolve(tiny(load="kept"))
    assert why in caught.value.why
    assert fix in caught.value.fix


def test_what_megatron_loads_and_the_checkout_it_comes_from_must_be_trusted(resolve: Resolve, tmp_path: Path) -> None:
    kept = checkpoint(tmp_path / "kept", 2, 4)
    shared = checkpoint(tmp_path / "shared", 8)
    tracker = "latest_checkpointed_iteration.txt"
    assert resolve(tiny(load="kept", ckpt_step=2)).loads == (f"{kept}/{tracker}", f"{kept}/iter_0000002")
    found = resolve(tiny(load="kept", save="shared")).loads
    assert found == (f"{kept}/{tracker}", f"{kept}/iter_0000004", f"{shared}/{tracker}", f"{shared}/iter_0000008")
    assert resolve(tiny()).loads == ()


def test_a_folder_to_save_in_and_load_from_may_be_new(resolve: Resolve, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    assert resolve(tiny(load="kept", save="kept")).config["settings"]["load"] == str(tmp_path / "kept")


def test_folders_to_write_in_are_asked_for(resolve: Resolve, tmp_path: Path) -> None:
    wanted = resolve(tiny(save="kept", data_cache_path="cache")).requires
    assert {need.name for need in wanted if need.kind == "folder"} == {str(tmp_path / "kept"), str(tmp_path / "cache")}


@pytest.mark.full
def test_of_a_container_nothing_is_known_outside(primus: Run, tmp_path: Path) -> None:
    cut(data(tmp_path, [[1] * 100]).with_suffix(".bin"), 10)
    words = ["mock_data=false", "tokenizer_type=NullTokenizer", "train_data_path=corpus", "backend_path=/in/the/image"]
    train = ("--", "train", "pretrain", "--config", str(ROOT / "examples/megatron/tiny-cpu.yaml"), *words)
    inside = primus("container", "--image", "mine", "--dry-run", *train, env=CPU)
    assert inside.returncode == 0, inside.stderr
    here = primus("direct", "--dry-run", *train, env=CPU)
    assert here.returncode == 3
    assert "backend_path '/in/the/image' contains no Megatron" in here.stderr


def test_turned_off_as_a_whole_its_attention_is_off(resolve: Resolve) -> None:
    plan = resolve(tiny(enable_primus_turbo=False, use_turbo_attention=True))
    assert not plan.config["own"].get("use_turbo_attention")
    assert "use_turbo_attention is ignored: enable_primus_turbo is false" in plan.notes
