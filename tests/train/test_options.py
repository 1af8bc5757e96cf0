"""A framework's argument list as data: what fits it and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_core.config.document import Document
from primus_core.errors import ConfigError
from primus_train.kit.options import Option, check, examine, load
from primus_train.kit.settings import Settings

ROWS: dict[str, dict[str, Any]] = {
    "training.steps": {"type": "int", "default": 10},
    "training.seq_len": {"type": "int", "default": 2048},
    "training.name": {"type": "str", "default": "x"},
    "training.note": {"type": "str", "default": None, "optional": True},
    "optimizer.lr": {"type": "float", "default": 1e-3},
    "optimizer.kind": {"type": "str", "default": "AdamW", "choices": ["Adam", "AdamW"]},
    "optimizer.parts": {"type": "list", "default": [], "choices": ["heads", "layers"]},
    "parallel.mesh.dims": {"type": "list", "default": []},
    "parallel.share": {"type": "float", "default": 0.5, "least": 0, "most": 1},
    "debug": {"type": "bool", "default": False},
    "extra": {"type": "dict", "default": {}},
    "any": {"type": "any"},
}
OPTIONS = {name: Option(name=name, **{**row, "choices": tuple(row.get("choices", ()))}) for name, row in ROWS.items()}


def checked(data: dict[str, Any]) -> dict[str, Any]:
    """The flat settings."""
    return check(Document(data, {(): "x.yaml"}), OPTIONS, framework="acme")


def refused(data: dict[str, Any], marks: dict[tuple[str | int, ...], str] | None = None) -> ConfigError:
    """The error that these settings give."""
    with pytest.raises(ConfigError) as caught:
        check(Document(data, {(): "x.yaml", **(marks or {})}), OPTIONS, framework="acme")
    return caught.value


def test_a_shipped_schema_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps({"version": "1.2", "options": ROWS}))
    assert load(tmp_path / "s.json") == ("1.2", OPTIONS)


def test_nested_and_dotted_settings_are_the_same() -> None:
    nested = {"training": {"steps": 5}, "parallel": {"mesh": {"dims": [1]}}, "debug": True}
    dotted = {"training.steps": 5, "parallel.mesh.dims": [1], "debug": True}
    mixed = {"training": {"steps": 5}, "parallel": {"mesh.dims": [1]}, "debug": True}
    assert checked(nested) == checked(mixed) == checked(dotted) == dotted


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("training.steps", 1e4, 10000),
        ("optimizer.lr", 1, 1.0),
        ("debug", 1, True),
        ("debug", 0, False),
        ("training.note", None, None),
        ("extra", {"a.b": 1}, {"a.b": 1}),
        ("any", [None], [None]),
        ("training", None, {}),
    ],
)
def test_a_value_that_means_the_type_is_taken_as_it(name: str, value: Any, kept: Any) -> None:
    result = checked({name: value})
    assert result == ({} if name == "training" else {name: kept})
    assert [type(v) for v in result.values()] == ([] if name == "training" else [type(kept)])


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("training.steps", "ten", "takes a whole number: 'ten' is str"),
        ("training.steps", 1.5, "takes a whole number: 1.5 is float"),
        ("training.steps", True, "takes a whole number: True is bool"),
        ("training.steps", float("inf"), "takes a whole number"),
        ("training.steps", None, "cannot be empty"),
        ("optimizer.lr", "1e-5x", "takes a number"),
        ("optimizer.lr", False, "takes a number"),
        ("training.name", 3.5, "takes text: 3.5 is float"),
        ("debug", "yes", "takes true or false: 'yes' is str"),
        ("debug", 2, "takes true or false: 2 is int"),
        ("debug", 1.0, "takes true or false"),
        ("parallel.mesh.dims", "1,2", "takes a list"),
        ("extra", [], "takes keys and values"),
        ("training.steps", {"a": 1}, "takes a whole number"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_line_and_default(name: str, value: Any, said: str) -> None:
    path = tuple(name.split("."))
    data: Any = value
    for part in reversed(path):
        data = {part: data}
    error = refused(data, {path: "x.yaml:7"})
    assert error.what.startswith(f"x.yaml:7: '{name}' ")
    assert said in error.what
    assert error.fix


@pytest.mark.parametrize(
    ("kind", "value", "fix"),
    [
        ("int", "2", "write it without quotes"),
        ("int", "8k", "write all digits: 8k is 8000 or 8192"),
        ("int", "1.5k", "write all digits: 1.5k is 1500 or 1536"),
        ("int", "10,000", "write 10000"),
        ("int", "1_000", "write 1000"),
        ("int", "4h", "write a number alone, without 'h'"),
        ("float", "1e-4x", "write a number alone, without 'x'"),
        ("int", 1.5, "write a whole number, for example 2"),
        ("float", float("nan"), "give it a number that is finite; write a number, for example 0.1"),
    ],
)
def test_where_there_is_no_default_the_fix_says_what_a_value_looks_like(kind: str, value: Any, fix: str) -> None:
    with pytest.raises(ConfigError) as error:
        check(Document({"x": value}, {(): "x.yaml"}), {"x": Option(name="x", type=kind)}, framework="acme")
    assert error.value.fix == fix


def test_the_beginning_of_several_names_and_the_names_of_other_tools_are_answered(tmp_path: Path) -> None:
    others = tmp_path / "others.toml"
    others.write_text('tp = "parallel.share"\nseed = "a, b"\nkind = "data.tokenizer_type"\npath = "data.path"\n')
    names = ("data.tokenizer_type", "data.tokenizer_model", "optimizer.lr", "data.split")
    options = {name: Option(name=name, type="int") for name in names}
    asked = {"data": {"tokenizer": 1, "tokenizer_typ": 1, "kind": 1, "path": 1}, "tp": 2, "seed": 1, "LR": 1}
    found = examine(Document(asked, {(): "x.yaml"}), options, framework="acme", others=[str(others)]).mistakes.found
    assert [error.fix for error in found] == [
        "set one of data.tokenizer_model, data.tokenizer_type",
        "did you mean 'data.tokenizer_type'?",
        "did you mean 'data.tokenizer_type'?",
        "did you mean 'path'?",
        "did you mean 'parallel.share'?",
        "set one of a, b",
        "did you mean 'optimizer.lr'?",
    ]


@pytest.mark.parametrize("word", ["yes", "no", "on", "Off"])
def test_the_fix_for_a_word_of_yaml_1_1_is_true_or_false(word: str) -> None:
    assert refused({"debug": word}, {}).fix == "write true or false"


def test_a_value_that_is_none_of_the_choices_is_refused_with_them() -> None:
    error = refused({"optimizer": {"kind": "adamw2"}})
    assert error.what == "x.yaml: 'optimizer.kind' cannot be 'adamw2'"
    assert error.why == "known values: Adam, AdamW"
    assert error.fix == "did you mean 'AdamW'?"


@pytest.mark.parametrize(("value", "said"), [(-0.1, "is -0.1, and must be at least 0"), (2, "must be at most 1")])
def test_a_number_outside_of_its_range_is_refused(value: float, said: str) -> None:
    assert said in refused({"parallel": {"share": value}}, {("parallel", "share"): "x.yaml:3"}).what
    assert checked({"parallel": {"share": 1}}) == {"parallel.share": 1.0}


def test_a_name_of_several_sections_is_answered_with_all_of_them() -> None:
    both = {name: Option(name=name, type="int") for name in ("training.steps", "validator.steps")}
    with pytest.raises(ConfigError) as error:
        check(Document({"steps": 1}, {(): "x.yaml"}), both, framework="acme")
    assert error.value.fix == "set one of training.steps, validator.steps"


def test_a_value_of_another_type_is_answered_with_the_choices_or_what_a_switch_wants() -> None:
    assert refused({"optimizer.kind": True}).fix == "write one of Adam, AdamW"
    assert refused({"debug": "steps=3"}).fix == "write debug=true, and steps=3 behind it"


def test_a_switch_of_another_tool_is_answered_with_the_value_that_it_means(tmp_path: Path) -> None:
    (tmp_path / "others.toml").write_text('bf16 = "precision.kind=bfloat16"\n')
    document, others = Document({"bf16": True}, {(): "x.yaml"}), [str(tmp_path / "others.toml")]
    found = examine(document, OPTIONS, framework="acme", others=others)
    assert [error.fix for error in found.mistakes.found] == ["write precision.kind=bfloat16"]
    assert "precision.kind" in found.refused


def test_what_is_proposed_takes_the_value_and_is_no_other_name(tmp_path: Path) -> None:
    others = tmp_path / "others.toml"
    others.write_text('warmup = "training.share: a share of the steps"\ndtype = "debug"\n')
    names = {"enable_wandb": "bool", "lr_decay_iters": "int"}
    options = {**OPTIONS, **{name: Option(name=name, type=kind) for name, kind in names.items()}}
    typed = {"warmup": 100, "dtype": "bfloat16", "enable_nnx": True, "lr_decay_itres": 3}
    marks: dict[tuple[str | int, ...], str] = {
        (name,): f"command line: {name}={value}" for name, value in typed.items()
    }
    document = Document(typed, {(): "x.yaml", **marks})
    found = examine(document, options, framework="acme", others=[str(others)]).mistakes.found
    wrong = "its value is wrong, too: 'debug' takes true or false: 'bfloat16' is str; write true or false"
    assert [(error.fix, error.meant) for error in found] == [
        ("set training.share, which is a share of the steps", None),
        (f"did you mean 'debug'?\n{wrong}", None),
        ("remove it", None),
        ("did you mean 'lr_decay_iters'?", "lr_decay_iters"),
    ]
    llama = Option(name="block", type="str", choices=("llama2", "llama4", "gemma"))
    for value, fix in (("llama3", "use one of them"), ("gema", "did you mean 'gemma'?")):
        with pytest.raises(ConfigError) as error:
            check(Document({"block": value}, {(): "x.yaml"}), {"block": llama}, framework="acme")
        assert error.value.fix == fix


def test_each_value_of_a_list_is_one_of_the_choices() -> None:
    assert checked({"optimizer": {"parts": ["layers", "heads"]}}) == {"optimizer.parts": ["layers", "heads"]}
    assert refused({"optimizer": {"parts": ["heads", "layer"]}}).fix == "did you mean 'layers'?"


@pytest.mark.parametrize(
    ("data", "name", "fix"),
    [
        ({"training": {"stepz": 1}}, "training.stepz", "did you mean 'training.steps'?"),
        ({"trainng": {"steps": 1}}, "trainng", "did you mean 'training'?"),
        ({"training.stepz": 1}, "training.stepz", "did you mean 'training.steps'?"),
        ({"lr": 1}, "lr", "did you mean 'optimizer.lr'?"),
        ({"training": {"lr": 1}}, "training.lr", "did you mean 'optimizer.lr'?"),
        ({"parallel": {"msh": {}}}, "parallel.msh", "did you mean 'parallel.mesh'?"),
        ({"zzz": 1}, "zzz", "remove it"),
        ({"seq-len": 1}, "seq-len", "did you mean 'training.seq_len'?"),
        ({"training": {"n": 1}}, "training.n", "remove it"),
        ({"..": 1}, "..", "remove it"),
    ],
)
def test_a_misspelt_setting_is_refused_with_its_line_and_a_suggestion(
    data: dict[str, Any], name: str, fix: str
) -> None:
    error = refused(data, {(next(iter(data)),): "x.yaml:3"})
    assert error.what == f"x.yaml:3: acme has no setting '{name}'"
    assert error.fix == fix


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        ({"optimizer": {"kindness": "Adam"}}, "did you mean 'optimizer.kind'?"),
        ({"optimizer": {"par": []}}, "did you mean 'optimizer.parts'?"),
        ({"training": {"no": "x"}}, "remove it"),  # too short to stand for `note` or `name`
        ({"training": {"n": "x"}}, "remove it"),
        ({"parallel": {"mesh_of_nodes": 1}}, "remove it"),
    ],
)
def test_a_name_that_is_longer_or_shorter_than_the_only_such_one_is_answered_with_it(
    given: dict[str, Any], fix: str
) -> None:
    assert refused(given).fix == fix


def test_where_nothing_is_near_the_settings_of_the_section_are_listed() -> None:
    assert refused({"training": {"zzz": 1}}).why == "known in 'training': name, note, seq_len, steps"


def test_a_value_in_place_of_a_section_is_refused_as_such() -> None:
    error = refused({"training": 5})
    assert error.what == "x.yaml: 'training' is 5"
    assert error.why == "it is a section of settings"


def test_a_section_is_empty_in_a_file_and_refused_as_none_on_the_command_line() -> None:
    assert checked({"optimizer": None}) == {}
    error = refused({"optimizer": None}, {("optimizer",): "command line: optimizer=None"})
    assert (error.what, error.why) == (
        "command line: optimizer=None: 'optimizer' is None",
        "it is a section of settings",
    )


keys = st.sampled_from(["training", "steps", "lr", "optimizer", "a.b", "training.steps", "extra", ""]) | st.text(
    max_size=4
)
data = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(keys, data, max_size=3))
@pytest.mark.full
def test_any_settings_are_known_options_or_refused(settings: dict[str, Any]) -> None:
    result, fix = {}, "none needed"
    try:
        result = checked(settings)
    except ConfigError as error:
        fix = error.fix
    assert result.keys() <= OPTIONS.keys()
    assert fix


@pytest.mark.parametrize(
    ("name", "value"),
    [("optimizer.lr", float("nan")), ("optimizer.lr", float("-inf")), ("parallel.mesh.dims", [1, float("inf")]),
     ("extra", {"a": {"b": float("nan")}}), ("any", float("inf"))],
)  # fmt: skip
def test_what_is_no_finite_number_is_refused(name: str, value: Any) -> None:
    error = refused({name: value}, {(name,): "x.yaml:4"})
    assert f"'{name}' is {value!r}, which is not a finite number" in error.what
    assert error.where == "x.yaml:4"


def test_every_wrong_setting_is_said() -> None:
    error = refused({"training": {"stpes": 5, "seq_len": "long"}, "debug": 2, "optimizer.lr": 1e-3})
    assert [one.what.split("'")[1] for one in error.each()] == ["training.stpes", "training.seq_len", "debug"]


def test_a_check_by_a_value_that_was_refused_says_nothing() -> None:
    found = Settings(Document({"training": {"stpes": 5, "seq_len": "long"}}), OPTIONS, (), {}, "acme")
    said: list[int] = []
    found.check(lambda s: said.append(s["training.steps"]), lambda s: said.append(s["training.seq_len"]))
    found.check(lambda s: said.append(s["optimizer.lr"]))
    assert (said, len(found.mistakes.found)) == ([1e-3], 2)


def test_no_checkpoint_is_continued_after_which_the_loss_was_not_finite(tmp_path: Path) -> None:
    """Its weights would give the same loss again, and a run near its end would complete with it."""
    rows = "".join(
        f'{{"step": {at}, "steps": 9, "loss": {loss}}}\n' for at, loss in enumerate(["1.0"] * 3 + ["null"], 1)
    )
    (tmp_path / "metrics.jsonl").write_text(rows)
    settings = Settings(Document({}), OPTIONS, (), {}, "acme")
    step, notes = settings.start_from(str(tmp_path), [2, 3, 4], "training.steps")
    assert (step, len(notes)) == (2, 2)
    assert "step 3, 4): the loss was not finite after them" in notes[1]
    assert settings.weights_from(str(tmp_path), [2, 3, 4])[0] == 2
    assert settings.start_from(str(tmp_path), [2, 3, 4], "training.steps", at=4)[0] == 4
    with pytest.raises(ConfigError, match="is from before its loss was not finite") as caught:
        settings.start_from(str(tmp_path), [3, 4], "training.steps")
    assert "start with --new, without" in caught.value.fix
