"""`primus config migrate` on text and data: comments stay, what was renamed is renamed, what died is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run

from primus_core.errors import RequestError
from primus_train.migration import Fate, Migration, find_version


def _judge(name: str, value: Any) -> Fate | None:
    return {"old": Fate(to="older"), "older": Fate(to="new"), "odd": Fate(to="never")}.get(name)


ACME = Migration("acme", "2.0", {"new", "section.deep"}, _judge, {"1.0": {"late"}, "2.0": {"new"}, "3.0": {"next"}})
HEAD = "exp_name: demo\nworkspace: output\nmodules:\n  pre_trainer:\n    framework: torchtitan\n    overrides:\n"


def test_a_renaming_is_followed_to_a_name_that_the_version_has() -> None:
    assert ACME.fate("old", 1) == Fate(to="new")
    assert ACME.fate("new", 1) is None
    assert ACME.fate("model.family", 1) is None, "sections of Primus stay"


def test_a_dash_is_an_underscore() -> None:
    acme = Migration(
        "acme", "2.0", {"num_layers"}, lambda name, _: Fate(to="num_layers") if name == "old_layers" else None
    )
    assert acme.fate("num-layers", 1) == Fate(to="num_layers", why="settings are written with underscores")
    assert acme.fate("old-layers", 1) == Fate(to="num_layers")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("late", "removed from acme in 2.0"),
        ("next", "acme has it since 3.0"),
        ("xyz", "no known version of acme has it"),
        ("odd", "no known version of acme has it"),
    ],
)
def test_what_is_unknown_says_since_when(name: str, why: str) -> None:
    assert ACME.fate(name, 1) == Fate(why=why)


def test_the_nearest_name_is_no_more_than_a_suggestion() -> None:
    found = ACME.fate("section.deap", 1)
    assert found
    assert (found.to, "section.deep" in found.fix) == ("", True)


def test_a_short_version_is_the_newest_of_its_kind() -> None:
    assert find_version("acme", "0.1", ["0.1.2", "0.1.10", "0.19.2"]) == "0.1.10"
    with pytest.raises(RequestError, match=r"unknown version acme==0\.2"):
        find_version("acme", "0.2", ["0.1.2", "0.19.2"])


def test_the_new_file_has_the_comments_and_the_order_of_the_old_one(primus: Run, tmp_path: Path) -> None:
    pytest.importorskip("primus_torchtitan", reason="torchtitan is not installed")
    lines = [
        "      training:",
        "        batch_size: 1   # small",
        "        seed: 5  # lucky",
        "        mock_data: true",
        "      # says how much",
        "      memory_estimation:",
        "        enable: false",
        "      lr_scheduler.lr_min: 0.1",
    ]
    (tmp_path / "old.yaml").write_text(HEAD + "\n".join(lines) + "\n")
    done = primus("config", "migrate", "old.yaml", "--to", "torchtitan==0.3", "-o", "new.yaml")
    assert (done.returncode, done.stdout) == (0, "wrote new.yaml\n")
    expected = [
        "      debug.seed: 5  # lucky",
        "      training:",
        "        local_batch_size: 1   # small",
        "        mock_data: true",
        "      # says how much",
        "      # memory_estimation:",
        "        # enable: false",
        "      lr_scheduler.min_lr_factor: 0.1",
    ]
    assert (tmp_path / "new.yaml").read_text() == HEAD + "\n".join(expected) + "\n"
    assert "  renamed  training.seed -> debug.seed (renamed in TorchTitan 0.3)\n" in done.stderr
    assert "  removed  memory_estimation.enable: removed from TorchTitan in 0.3: the estimate" in done.stderr


def test_a_section_that_was_renamed_keeps_its_settings(primus: Run, tmp_path: Path) -> None:
    pytest.importorskip("primus_torchtitan", reason="torchtitan is not installed")
    text = '[job]\n[model]\nname = "llama3"\nflavor = "debugmodel"\n[profiling]\nprofile_freq = 10\n'
    (tmp_path / "titan.toml").write_text(text)
    done = primus("config", "migrate", "titan.toml", "--to", "torchtitan==0.3")
    assert "      profiler.profile_freq: 10\n" in done.stdout


def test_what_was_only_renamed_is_no_difference_and_keeps_its_place(primus: Run, tmp_path: Path) -> None:
    pytest.importorskip("primus_torchtitan", reason="torchtitan is not installed")
    text = '[model]\nname = "llama3"\nflavor = "debugmodel"\n[training]\nbatch_size = 2\nmock_data = true\n'
    (tmp_path / "old.toml").write_text(text)
    migrated = primus("config", "migrate", "old.toml", "--to", "torchtitan==0.3", "-o", "new.yaml")
    assert "2 renamed" in migrated.stderr
    same = primus("config", "diff", "old.toml", "new.yaml", "--gpu", "none")
    assert (same.returncode, same.stdout) == (0, "no setting differs\n")
    new = (tmp_path / "new.yaml").read_text().replace("local_batch_size: 2", "local_batch_size: 3")
    (tmp_path / "new.yaml").write_text(new)
    differs = primus("config", "diff", "old.toml", "new.yaml", "--gpu", "none").stdout.splitlines()
    assert [line.split() for line in differs] == [
        ["training.local_batch_size"],
        ["2", "old.toml:5"],
        ["3", "new.yaml:13"],
    ]


PATHS = """extends: base.yaml  # ours
modules:
  pre_trainer:
    framework: torchtitan
    model: ./small.yaml
    data:
      text: corpus  # of the team
      vocab_size: 2048
      input:  # both
        - "c.jsonl"
        - https://host/d
      tokenizer_model: >-
        t.json
    overrides:
      training.seed: 5
      hf_assets_path: ${ASSETS:-}
      checkpoint.initial_load_path: 'a b'
"""


def test_in_another_folder_the_new_file_means_the_same_files(primus: Run, tmp_path: Path) -> None:
    pytest.importorskip("primus_torchtitan", reason="torchtitan is not installed")
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
    (tmp_path / "old/exp.yaml").write_text(PATHS)
    migrate = ("config", "migrate", "old/exp.yaml", "--to", "torchtitan==0.3")
    done = primus(*migrate, "-o", "new/exp.yaml")
    expected = (
        PATHS.replace("training.seed", "debug.seed")
        .replace("base.yaml", f"{tmp_path}/old/base.yaml")
        .replace("corpus", f"{tmp_path}/old/corpus")
        .replace('"c.jsonl"', f"{tmp_path}/old/c.jsonl")
        .replace(">-\n        t.json", f"{tmp_path}/old/t.json")
        .replace("'a b'", f"{tmp_path}/old/a b")
    )
    assert (tmp_path / "new/exp.yaml").read_text() == expected
    names = ", ".join(f"modules.pre_trainer.data.{name}" for name in ("text", "input", "tokenizer_model"))
    assert done.stderr.splitlines()[-2:] == [
        f"note: paths are absolute in the new file: extends, {names}, checkpoint.initial_load_path",
        "note: the new file needs beside it: ./small.yaml",
    ]
    assert primus(*migrate).stdout == expected, "what is redirected may be in any folder"
    beside = primus(*migrate, "-o", "old/new.yaml")
    assert (tmp_path / "old/new.yaml").read_text() == PATHS.replace("training.seed", "debug.seed")
    assert "absolute" not in beside.stderr


def test_a_migrated_experiment_in_another_folder_differs_in_no_setting(primus: Run, tmp_path: Path) -> None:
    pytest.importorskip("primus_torchtitan", reason="torchtitan is not installed")
    for folder in ("old/corpus", "new"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "old/corpus/a.md").write_text("one\n")
    model = "      model: {family: llama3, flavor: debugmodel}\n"
    data = "    data: {text: corpus, vocab_size: 2048}\n    overrides:\n"
    (tmp_path / "old/exp.yaml").write_text(HEAD.replace("    overrides:\n", data) + model)
    primus("config", "migrate", "old/exp.yaml", "--to", "torchtitan==0.3", "-o", "new/exp.yaml")
    same = primus("config", "diff", "old/exp.yaml", "new/exp.yaml", "--gpu", "none")
    assert (same.returncode, same.stdout) == (0, "no setting differs\n"), same.stderr


@pytest.mark.full
def test_where_lines_cannot_be_edited_the_file_is_written_anew(primus: Run, tmp_path: Path) -> None:
    pytest.importorskip("primus_torchtitan", reason="torchtitan is not installed")
    (tmp_path / "old.yaml").write_text(HEAD + "      training: {batch_size: 1, seed: 5}  # flow\n")
    done = primus("config", "migrate", "old.yaml", "--to", "torchtitan==0.3")
    assert done.returncode == 0
    assert done.stdout.endswith("      training:\n        local_batch_size: 1\n      debug.seed: 5\n")
    assert "note: comments are lost" in done.stderr
    (tmp_path / "new.yaml").write_text(done.stdout)
    again = primus("config", "migrate", "new.yaml", "--to", "torchtitan==0.3")
    assert (again.stdout, again.stderr) == (done.stdout, "new.yaml: torchtitan 0.3.0 has all settings\n")


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--to", "torchtitan"), "'torchtitan' is not FRAMEWORK==VERSION"),
        (("--to", "jax"), "fix: --to torchtitan==VERSION"),
        (("--to", "new.yaml"), "fix: --to torchtitan==VERSION -o new.yaml"),
        (("--to", "megatron-core==0.19"), "no module of old.yaml trains with megatron\n  why: it has: torchtitan"),
        (("--to", "v0.3"), "primus config migrate old.yaml --to torchtitan==0.3"),
        (("--to", "torchtitan-0.3"), "primus config migrate old.yaml --to torchtitan==0.3"),
        (("--to", "torchtitan=0.3"), "primus config migrate old.yaml --to torchtitan==0.3"),
        (("--to", "torchtitan==9.9"), "unknown version torchtitan==9.9"),
        (("--to", "torchtitan==0.3", "-o", "old.yaml"), "old.yaml is there already"),
        (("--to", "torchtitan==0.3", "-o", "new.toml"), "'new.toml' would hold YAML"),
        (("--to", "torchtitan==0.3"), "are the same setting with different values"),
    ],
)
def test_wrong_requests_are_refused(primus: Run, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    pytest.importorskip("primus_torchtitan", reason="torchtitan is not installed")
    other = 5 if "-o" in words and "new.toml" in words else 6
    (tmp_path / "old.yaml").write_text(f"{HEAD}      training.seed: 5\n      debug.seed: {other}\n")
    done = primus("config", "migrate", "old.yaml", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
