"""`primus models`: what it lists, shows and compares, whose models are known, and what is refused."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import pytest
from tests.conftest import ROOT, Run

from primus_core.errors import ConfigError
from primus_train.models import catalogue
from primus_train.models.arithmetic import parameters
from primus_train.models.files import read

MINE = """\
models:
  mine_1B:
    source: [my notebook]
    num_layers: 16
    hidden_size: 2048
    ffn_hidden_size: 8192
    num_attention_heads: 16
    num_kv_heads: 4
    vocab_size: 32000
    max_position_embeddings: 4096
    rope_theta: 1e4
    norm_eps: 1e-5
    tie_embeddings: true
"""
PARAMETERS = 32000 * 2048 + 16 * (2048 * 128 * 24 + 2048 * 2048 + 3 * 2048 * 8192 + 2 * 2048) + 2048


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A file with one model."""
    path = tmp_path / "mine.yaml"
    path.write_text(MINE)
    return path


# The catalogue


def test_every_model_says_where_its_facts_are_from() -> None:
    for model in catalogue.load().values():
        assert model.facts.source[0] == f"https://huggingface.co/{model.facts.hf}"
        assert model.facts.published


def test_a_model_is_found_by_its_name_on_huggingface_co_too() -> None:
    models = catalogue.load()
    assert catalogue.find("meta-llama/Llama-3.1-8B", models) == models["llama3.1_8B"]


@pytest.mark.full
def test_the_list_is_a_table_and_words_choose(primus: Run) -> None:
    whole = primus("models", "list")
    assert re.search(
        r"^llama3\.1_8B +llama3 +dense +8\.03B +8\.03B +32 +4096 +131072 +meta-llama/\S+$", whole.stdout, re.M
    )
    assert len(whole.stdout.splitlines()) == 2 + len(catalogue.load())
    chosen = primus("models", "list", "MoE", "qwen3", "--json")
    assert [row["name"] for row in json.loads(chosen.stdout)] == ["qwen3_30B_A3B", "qwen3_235B_A22B"]
    assert primus("models", "list", "moe", "llama2").stdout == "no model has 'moe' and 'llama2'\n"


def test_show_says_facts_counts_and_flops(primus: Run) -> None:
    text = primus("models", "show", "deepseek_v3").stdout
    for line in (r"moe\.num_experts +256", r"experts +653,908,770,816 +97\.4%", r"kv-up +512 x 32768, 61",
                 r"source +https://huggingface\.co/deepseek-ai/DeepSeek-V3"):  # fmt: skip
        assert re.search(f"^  {line}$", text, re.M), line
    assert "parameters: 671,026,419,200; 37,552,297,472 of them work on a token" in text
    assert "at 4,096 tokens: 259,992,821,760" in text


def test_show_as_json_adds_up(primus: Run) -> None:
    shown = json.loads(primus("models", "show", "llama3.1_8B", "--seq-length", "8192", "--json").stdout)
    assert shown["facts"]["rope_scaling"]["factor"] == 8.0
    assert shown["parameters"]["total"] == sum(shown["parameters"]["parts"].values()) == 8_030_261_248
    assert shown["flops_per_token"]["seq_length"] == 8192
    assert shown["flops_per_token"]["total"] == sum(shown["flops_per_token"]["parts"].values()) == 51_470_401_536


def test_an_earlier_name_finds_the_model(primus: Run) -> None:
    for name in ("mixtral_8x7B_v0.1", "MIXTRAL_8x7b", "mixtral-8x7b", "mixtral-8x7b-v0.1"):
        assert primus("models", "show", name).stdout.startswith("mixtral_8x7B\n")


def test_an_unknown_name_is_refused_with_a_suggestion(primus: Run) -> None:
    refused = primus("models", "show", "llama-3.1-8bn")
    assert refused.returncode == 2
    assert "no model is called 'llama-3.1-8bn'" in refused.stderr
    assert "did you mean 'llama3.1_8B'?" in refused.stderr
    assert "'0' is not a number of tokens" in primus("models", "show", "grok1", "--seq-length", "0").stderr


def test_check_holds_for_every_model(primus: Run) -> None:
    result = primus("models", "check")
    count = len(catalogue.load())
    assert (result.returncode, result.stdout) == (
        0,
        f"{count} of {count} models have the known number of parameters, to the unit\n",
    )


@pytest.mark.full
def test_check_says_what_differs_and_which_fact_would_explain_it(primus: Run, mine: Path) -> None:
    mine.write_text(MINE.replace("true", "false") + f"    parameters: {PARAMETERS}\n")
    result = primus("models", "check", "mine.yaml")
    assert result.returncode == 1
    difference, verdict = result.stdout.splitlines()
    assert difference == (
        f"mine_1B: parameters {PARAMETERS:,} are known, {PARAMETERS + 65_536_000:,} by its facts (+65,536,000)"
        " at mine.yaml:2; equal with tie_embeddings: true"
    )
    assert verdict == "0 of 1 models have the known number of parameters, to the unit"
    mine.write_text(MINE + f"    parameters: {PARAMETERS}\n")
    assert primus("models", "check", "mine.yaml").returncode == 0
    mine.write_text(MINE)
    assert "not compared, because they have no known number: mine_1B" in primus("models", "check", "./mine.yaml").stdout


# Models of others


@pytest.mark.full
def test_a_file_of_ones_own_is_a_model_by_path_or_named_in_the_system_config(primus: Run, mine: Path) -> None:
    assert f"parameters: {PARAMETERS:,}" in primus("models", "show", str(mine)).stdout
    (mine.parent / "primus.yaml").write_text("models: [mine.yaml]\n")
    shown = json.loads(primus("models", "show", "mine_1B", "--json").stdout)
    assert (shown["origin"], shown["facts"]["head_dim"]) == ("mine.yaml", 128)
    assert "mine_1B" in primus("models", "list", "mine").stdout


def test_the_documented_file_is_a_model(tmp_path: Path) -> None:
    page = (ROOT / "docs/models.md").read_text(encoding="utf-8")
    found = re.search(r"^`mine\.yaml`:\n\n((?: {4}.*\n)+)", page, re.M)
    assert found
    (tmp_path / "mine.yaml").write_text(textwrap.dedent(found[1]), encoding="utf-8")
    [model] = read(str(tmp_path / "mine.yaml"), "mine")
    assert (model.name, model.family, parameters(model.facts).total) == ("mine_1B", "mine", PARAMETERS)


def test_files_of_models_are_seen_in_a_container(
    primus: Run, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("elsewhere") / "mine.yaml"
    path.write_text(MINE)
    (project / "primus.yaml").write_text(f"plugins: [./my_tasks.py]\nmodels: [{path}]\n")
    planned = primus("container", "--dry-run", "--json", "--image", "IMG", "--", "behave", "exit", "0", cwd=project)
    words = json.loads(planned.stdout)["steps"][0]["argv"]
    assert any(word.startswith(f"type=bind,source={path}") for word in words), words


@pytest.mark.parametrize("action", ["show", "check"])
def test_an_experiment_is_no_file_of_models(primus: Run, tmp_path: Path, action: str) -> None:
    (tmp_path / "my exp.yaml").write_text("work_group: us\nmodules:\n  pre_trainer: {framework: megatron}\n")
    refused = primus("models", action, "my exp.yaml")
    assert refused.returncode == 2
    assert refused.stderr.splitlines() == [
        "primus: error: my exp.yaml:2: this is an experiment, and no file of models",
        "  fix: primus config show 'my exp.yaml' --resolved",
    ]


def test_a_file_with_two_models_does_not_say_which(primus: Run, mine: Path) -> None:
    mine.write_text(MINE + MINE.partition("\n")[2].replace("mine_1B", "other_1B"))
    refused = primus("models", "show", "mine.yaml")
    assert refused.returncode == 2
    assert "mine.yaml has 2 models" in refused.stderr
    assert "mine_1B, other_1B" in refused.stderr


@pytest.mark.full
def test_a_model_of_another_package_is_known(primus: Run, third_party: str) -> None:
    env = {"PYTHONPATH": third_party}
    assert re.search(r"^acme_2B +acme +dense", primus("models", "list", "acme", env=env).stdout, re.M)
    assert json.loads(primus("models", "show", "acme_2B", "--json", env=env).stdout)["origin"] == "acme-primus 2.1.0"


def test_two_models_of_one_name_are_an_error_that_names_both(primus: Run, mine: Path) -> None:
    mine.write_text(MINE.replace("mine_1B", "llama3.1_8B"))
    (mine.parent / "primus.yaml").write_text("models: [mine.yaml]\n")
    refused = primus("models", "list")
    assert refused.returncode == 2
    assert "mine.yaml:2: two models are called 'llama3.1_8B'" in refused.stderr
    assert re.search(r"the other is of Primus: \S+llama3\.yaml:\d+", refused.stderr)


def test_the_names_of_models_are_completed(primus: Run) -> None:
    found = primus("__complete", "3", "primus", "models", "show", "llama3.2")
    assert found.stdout.split() == ["llama3.2_1B", "llama3.2_3B"]


# What is refused


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("num_layers", "num_layer", 4, "did you mean 'num_layers'?"),
        ("num_layers: 16", "num_layers: 0", 4, "'num_layers' is 0"),
        ("num_layers: 16", "num_layers: sixteen", 4, "'num_layers' is 'sixteen'"),
        ("    num_layers: 16\n", "", 2, "'num_layers' is missing"),
        ("num_attention_heads: 16", "num_attention_heads: 15", 7, "2048 cannot be split into 15 heads"),
        ("num_kv_heads: 4", "num_kv_heads: 5", 8, "16 heads cannot share 5 heads"),
        ("rope_theta: 1e4", "rope_theta: .inf", 11, "'rope_theta' is inf"),
        ("source: [my notebook]", "source: []", 3, "'source' is []"),
        ("tie_embeddings: true", "moe: {num_expert: 8, topk: 2}\n    tie_embeddings: true", 13, "'num_experts'?"),
        ("tie_embeddings: true", "head_dim: 63\n    tie_embeddings: true", 13, "a head is 63 wide"),
        ("tie_embeddings: true", "tie_embeddings: true\n    full_attention_every: 2", 14, "set sliding_window, too"),
        ("tie_embeddings: true", "tie_embeddings: true\n    rope_scaling: {rope_type: yarm, factor: 2}", 14, "'yarm'"),
        ("mine_1B", "mine 1B", 2, "'mine 1B' is not a valid name of a model"),
        ("models:", "modles:", 1, "did you mean 'models'?"),
        (MINE, "models: [a]\n", 1, "`models` takes keys and values"),
        (MINE, "family: x\n", 0, "this file has no model"),
    ],
)  # fmt: skip
def test_a_wrong_fact_is_refused_with_its_place(mine: Path, old: str, new: str, line: int, said: str) -> None:
    mine.write_text(MINE.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        read(str(mine), "mine")
    assert said in str(caught.value)
    assert caught.value.where == (f"{mine}:{line}" if line else str(mine))


@pytest.mark.parametrize(
    ("moe", "said"),
    [
        ("num_experts: 8, topk: 9", "9 of 8 experts"),
        ("num_experts: 8, topk: 2, n_group: 3", "8 experts do not make 3 equal groups"),
        ("num_experts: 8, topk: 2, n_group: 2, topk_group: 4", "4 of 2 groups"),
        ("num_experts: 8, topk: 2, first_k_dense: 16", "16 dense layers of 16 leave none with experts"),
        ("num_experts: 8, topk: 2, router_bias: true, correction_bias: true", "the router has two biases"),
    ],
)
def test_an_impossible_mixture_is_refused(mine: Path, moe: str, said: str) -> None:
    mine.write_text(f"{MINE}    moe: {{{moe}, moe_ffn_hidden_size: 64}}\n")
    with pytest.raises(ConfigError, match=said) as caught:
        read(str(mine), "mine")
    assert caught.value.where == f"{mine}:14"


def test_a_head_of_latent_attention_is_the_sum_of_its_parts(mine: Path) -> None:
    mla = "{kv_lora_rank: 64, qk_nope_head_dim: 128, qk_rope_head_dim: 64, v_head_dim: 128}"
    mine.write_text(f"{MINE}    mla: {mla}\n")
    with pytest.raises(ConfigError, match=r"128 wide, and its parts 128 \+ 64"):
        read(str(mine), "mine")
    mine.write_text(f"{MINE}    mla: {mla}\n    head_dim: 192\n")
    assert read(str(mine), "mine")[0].kind == "dense, MLA"


def test_the_readme_lists_the_models_of_the_catalogue(primus: Run) -> None:
    families: dict[str, list[str]] = {}
    for row in json.loads(primus("models", "list", "--json").stdout):
        families.setdefault(row["family"], []).append(row["name"])
    wanted = [f"| {family} | {', '.join(names)} |" for family, names in families.items()]
    listed = (ROOT / "README.md").read_text().partition("| family | models |\n|---|---|\n")[2].partition("\n\n")[0]
    assert listed.splitlines() == wanted
