"""Settings become a plan, and wrong ones become errors with a place and a suggestion, without TorchTitan."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
from tests.indexed_files import write_indexed
from tests.train.published import PublishedExperiments

from primus_core.errors import ConfigError, MachineError
from primus_torchtitan.backend import TORCHTITAN
from primus_train.backend import BackendPlan
from primus_train.testing import BackendConformance

Resolve = Callable[..., BackendPlan]

BASE = """
model: {family: llama3, dim: 64, n_layers: 4, n_heads: 4, n_kv_heads: 2}
data: {text: python-stdlib, vocab_size: 512}
"""
PIPELINE = "parallelism: {{pipeline_parallel_degree: 2, pipeline_parallel_schedule: {}}}"


class TestTorchTitan(BackendConformance):
    backend = TORCHTITAN
    settings: ClassVar = {
        "model": {"family": "llama3", "dim": 64, "n_layers": 4, "n_heads": 4, "n_kv_heads": 2, "vocab_size": 512},
        "data": {"text": "python-stdlib"},
    }
    misspelt = ("training.stpes", "training.steps")
    frameworks = ("torch", "torchtitan", "numpy")


class TestPublished(PublishedExperiments):
    framework = "TorchTitan"


def refused(resolve: Resolve, text: str, *, ranks: int = 1, suffix: str = ".yaml") -> str:
    with pytest.raises(ConfigError) as caught:
        resolve(text, ranks=ranks, suffix=suffix)
    assert f"settings{suffix}" in str(caught.value), "the error names the file"
    return str(caught.value)


def test_the_config_of_a_plan_is_json(resolve: Resolve) -> None:
    config = resolve().config
    assert json.loads(json.dumps(config)) == config


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("trainig: {steps: 5}", "did you mean 'training'?"),
        ("training: {step: 5}", "did you mean 'training.steps'?"),
        ("training: {steps: many}", "'training.steps' takes a whole number"),
        ("training: {steps: 0}", "must be at least 1"),
        ("training: {steps: true}", "takes a whole number"),
        ("optimizer: {lr: fast}", "'optimizer.lr' takes a number"),
        ("optimizer: {name: Adamw}", "did you mean 'AdamW'?"),
        ("optimizer: {lr: 1e-3, param_groups: []}", "both describe the optimizer"),
        ("optimizer: {param_groups: [{pattern: '(', optimizer_name: Adam}]}", "not a regular expression"),
        ("optimizer: {param_groups: [{pattern: x, optimizer_name: Adan}]}", "did you mean 'Adam'?"),
        ("activation_checkpoint: {mode: sellective}", "did you mean 'selective'?"),
        ("activation_checkpoint: {mode: memory_budget}", "works on a compiled model only"),
        ("activation_checkpoint: {memory_budget: 0.3}", "needs activation_checkpoint.mode: memory_budget"),
        ("loss: {kind: mse}", "known values: chunked_cross_entropy, cross_entropy"),
        ("loss: {num_chunks: 7}", "cannot be cut into 7 chunks"),
        ("lr_scheduler: {decay_type: cosin}", "did you mean 'cosine'?"),
        ("checkpoint: {keep_latest_k: 1}", "cannot be 1"),
        ("checkpoint: {folder: ''}", "is empty"),
        ("dataloader: {dataset: c4_tset}", "did you mean 'c4_test'?"),
        ("dataloader: {dataset: c4}", "both set the training data"),
        ("training: {mock_data: true}", "keep one of them; to train on `data`: training.mock_data=false"),
        ("dump_folder: /tmp/x", "set `workspace:`"),
        ("parallelism: {pipeline_parallel_schedule: 1F1C}", "did you mean '1F1B'?"),
        ("parallelism: {expert_parallel_degree: 2}", "a model without experts"),
        ("auto_continue_train: sometimes", "takes true or false"),
        ("compile: {enable_async_tensor_parallel: true}", "works on a compiled model only"),
        ("validator: {steps: 0}", "must be positive or -1"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_place_and_a_fix(resolve: Resolve, text: str, expected: str) -> None:
    assert expected in refused(resolve, BASE + text)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("{}", "the model has no family"),
        ("{family: llama}", "did you mean 'llama3'?"),
        ("{family: llama3, flavor: 8bb}", "did you mean '8B'?"),
        ("{family: llama3, flavour: 8B}", "did you mean 'model.flavor'?"),
        ("{family: llama3, dim: 64}", "no n_layers and no n_heads"),
        ("{family: llama3, dim: 64, n_layers: 2, n_heads: 5}", "cannot be split into 5 heads"),
        ("{family: llama3, dim: 64, n_layers: 2, n_heads: 4, n_kv_heads: 3}", "cannot share 3 heads"),
        ("{family: llama3, dim: 64, n_layers: 2, n_heads: 64}", "needs an even width"),
        ("{family: llama3, dim: wide, n_layers: 2, n_heads: 4}", "'model.dim' takes a whole number"),
        ("{family: llama3, dim: 0, n_layers: 2, n_heads: 4}", "must be at least 1"),
        ("{family: deepseek_v3, flavor: 16B, dim: 64}", "you can set sizes for llama3 and qwen3"),
        ("{family: qwen3, flavor: 30B-A3B, n_layers: 2}", "without experts"),
        ("{family: my_models.llama}", "needs a flavor"),
        ("{family: llama3, dim: 64, n_layers: 2, n_heads: 4, vocab_size: 1024}", "data.vocab_size is 512"),
    ],
)
def test_a_wrong_model_is_refused(resolve: Resolve, model: str, expected: str) -> None:
    assert expected in refused(resolve, f"model: {model}\ndata: {{text: python-stdlib, vocab_size: 512}}")


@pytest.mark.parametrize(
    ("ranks", "text", "expected"),
    [
        (3, "parallelism: {tensor_parallel_degree: 2}", "do not make 3 ranks"),
        (1, "parallelism: {data_parallel_shard_degree: 2}", "do not make 1 rank"),
        (4, "parallelism: {tensor_parallel_degree: 4}", "does not divide n_kv_heads 2"),
        (2, "parallelism: {tensor_parallel_degree: 2}\ntraining: {seq_len: 63}\nloss: {kind: cross_entropy}", "63"),
        (2, "parallelism: {context_parallel_degree: 2}\ntraining: {seq_len: 66}\nloss: {kind: cross_entropy}", "66"),
        (2, "training: {global_batch_size: 20}", "not a multiple of 16"),
        (4, "parallelism: {pipeline_parallel_degree: 4, pipeline_parallel_schedule: Interleaved1F1B}", "too few"),
        (2, "parallelism: {pipeline_parallel_degree: 2, pipeline_parallel_microbatch_size: 3}", "not a multiple of"),
        (2, "parallelism: {pipeline_parallel_degree: 2, pipeline_parallel_layers_per_stage: 2}", "one stage each"),
        (2, "training: {local_batch_size: 1}\nparallelism: {pipeline_parallel_degree: 2}", "needs 2 microbatches"),
        (2, f"training: {{local_batch_size: 3}}\n{PIPELINE.format('DualPipeV')}", "needs 4 microbatches"),
        (2, f"training: {{local_batch_size: 5}}\n{PIPELINE.format('Interleaved1F1B')}", "makes 2 rounds"),
        (1, "training: {seq_len: 262144}", "exceed the model's 131072"),
    ],
)
def test_numbers_that_do_not_fit_are_refused_with_the_numbers(
    resolve: Resolve, ranks: int, text: str, expected: str
) -> None:
    assert expected in refused(resolve, BASE + text, ranks=ranks)


@pytest.mark.parametrize(
    ("ranks", "heads", "groups", "degrees", "proposed"),
    [
        (8, 8, 4, "tensor_parallel_degree: 3", "1, 2 or 4"),
        (8, 8, 4, "tensor_parallel_degree: 8", "1, 2 or 4"),
        (3, 8, 4, "tensor_parallel_degree: 3", "1; for 2 or 4, start another number of ranks"),
        (8, 6, 6, "tensor_parallel_degree: 3", "1 or 2; for 3 or 6, start another number of ranks"),
        (8, 8, 4, "data_parallel_shard_degree: 2, tensor_parallel_degree: 3", "4; for 1 or 2, start"),
    ],
)
def test_a_tensor_parallelism_is_proposed_that_heads_and_ranks_allow(
    resolve: Resolve, ranks: int, heads: int, groups: int, degrees: str, proposed: str
) -> None:
    model = BASE.replace("n_heads: 4, n_kv_heads: 2", f"n_heads: {heads}, n_kv_heads: {groups}").replace("64", "96")
    text = f"{model}parallelism: {{{degrees}}}\nloss: {{kind: cross_entropy}}\ntraining: {{seq_len: 96}}\n"
    assert f"set parallelism.tensor_parallel_degree to {proposed}" in refused(resolve, text, ranks=ranks)
    for degree in re.findall(r"\d+", proposed.partition(";")[0]):
        resolve(re.sub(r"tensor_parallel_degree: \d", f"tensor_parallel_degree: {degree}", text), ranks=ranks)


@pytest.mark.parametrize(
    ("ranks", "degrees", "proposed"),
    [
        (1, "tensor_parallel_degree: 2, pipeline_parallel_degree: 2", "set {tensor} and {pipeline} to 1, or start"),
        (1, "pipeline_parallel_degree: 2", "set {pipeline} to 1, or start another number"),
        (2, "tensor_parallel_degree: 4, pipeline_parallel_degree: 4", "set {tensor} to 1 or 2, and make their product"),
        (3, "pipeline_parallel_degree: 2", "make their product 3, or start another number"),
    ],
)
def test_degrees_are_proposed_that_divide_the_ranks(resolve: Resolve, ranks: int, degrees: str, proposed: str) -> None:
    model = BASE.replace("n_heads: 4, n_kv_heads: 2", "n_heads: 8, n_kv_heads: 8")
    said = refused(resolve, f"{model}parallelism: {{{degrees}}}\nloss: {{kind: cross_entropy}}", ranks=ranks)
    names = {name: f"parallelism.{name}_parallel_degree" for name in ("tensor", "pipeline")}
    assert f"fix: {proposed.format(**names)}" in said


@pytest.mark.parametrize(
    ("sizes", "tensor"),
    [
        ("dim: 256, n_heads: 7, n_kv_heads: 4", 1),
        ("dim: 256, n_heads: 7, n_kv_heads: 3", 1),
        ("dim: 256, n_heads: 7, n_kv_heads: 1", 4),
        ("dim: 64, n_heads: 64", 1),
        ("dim: 63, n_heads: 9, n_kv_heads: 2", 1),
        ("dim: 64, n_heads: 4, n_kv_heads: 3", 2),
    ],
)
def test_numbers_of_heads_are_proposed_that_make_a_model(resolve: Resolve, sizes: str, tensor: int) -> None:
    rest = f"data: {{text: python-stdlib, vocab_size: 512}}\nparallelism: {{tensor_parallel_degree: {tensor}}}\n"
    model = f"family: llama3, n_layers: 2, {sizes}"
    said = refused(resolve, f"model: {{{model}}}\n{rest}", ranks=tensor)
    for name, number in re.findall(r"model\.(\w+)=(\d+)", said):
        model = re.sub(f"(, {name}: \\d+|$)", f", {name}: {number}", model, count=1)
    resolve(f"model: {{{model}}}\n{rest}", ranks=tensor)


@pytest.mark.parametrize(("ranks", "heads"), [(8, 4), (6, 4), (8, 6)])
def test_another_length_of_sequences_is_proposed_only_for_a_degree_that_is_possible(
    resolve: Resolve, ranks: int, heads: int
) -> None:
    model = BASE.replace("n_heads: 4, n_kv_heads: 2", f"n_heads: {heads}, n_kv_heads: {heads}").replace("64", "96")
    text = f"{model}parallelism: {{tensor_parallel_degree: 3}}\nloss: {{kind: cross_entropy}}\n"
    said = refused(resolve, text, ranks=ranks)
    assert ("does not divide n_heads" in said, "do not make" in said) == (heads % 3 > 0, ranks % 3 > 0)
    assert "seq_len" not in said
    assert "take a multiple of 3" in refused(resolve, text.replace(f"heads: {heads}", "heads: 6"), ranks=6)


def test_tied_weights_cannot_be_split_into_stages(resolve: Resolve) -> None:
    text = "model: {family: llama3, flavor: 1B}\nparallelism: {pipeline_parallel_degree: 2}"
    assert "tied weights" in refused(resolve, text, ranks=2)


def test_the_plain_optimizer_settings_become_one_parameter_group(resolve: Resolve) -> None:
    settings = resolve(BASE + "optimizer: {lr: 1e-3, beta2: 0.99}").config["settings"]
    (group,) = settings["optimizer.param_groups"]
    assert group["optimizer_kwargs"] == {"lr": 1e-3, "betas": [0.9, 0.99], "eps": 1e-8, "weight_decay": 0.1}
    assert "optimizer.lr" not in settings


def test_own_sizes_change_a_flavor(resolve: Resolve) -> None:
    sizes = resolve("model: {family: llama3, flavor: 8B, n_layers: 4}").config["model"]["sizes"]
    assert sizes["n_layers"] == 4
    assert (sizes["dim"], sizes["n_kv_heads"], sizes["ffn_hidden_dim"]) == (4096, 8, 14336)


def test_a_flavor_alone_stays_the_frameworks(resolve: Resolve) -> None:
    assert resolve("model: {family: llama3, flavor: 8B}").config["model"]["sizes"] is None


def test_a_model_without_vocabulary_takes_that_of_the_data(resolve: Resolve) -> None:
    assert resolve().config["model"]["sizes"]["vocab_size"] == 512


def test_two_vocabularies_are_answered_with_the_settings_that_work(resolve: Resolve, tmp_path: Path) -> None:
    flavor = "model: {family: llama3, flavor: 8B}\ndata: {text: python-stdlib, vocab_size: 2048}\n"
    said = refused(resolve, flavor)
    assert "llama3 8B has 128256 of them by itself" in said
    assert said.endswith("fix: model.vocab_size=2048"), "the standard library is too little text for so many tokens"
    assert resolve(flavor.replace("8B", "8B, vocab_size: 2048")).config["model"]["sizes"]["vocab_size"] == 2048
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text("text")
    said = refused(resolve, flavor.replace("python-stdlib", str(tmp_path / "texts")))
    assert said.endswith("or data.vocab_size=null, if the text is enough for a tokenizer of 128256 tokens")
    assert resolve(flavor.replace("2048", "null")).config["model"]["flavor"] == "8B"
    fixed = refused(resolve, flavor.replace("llama3, flavor: 8B", "deepseek_v3, flavor: 16B"))
    assert "fix: data.vocab_size=null, " in fixed, "its sizes cannot be set"


def test_data_without_vocabulary_takes_that_of_the_model(resolve: Resolve) -> None:
    text = "model: {family: llama3, dim: 64, n_layers: 2, n_heads: 4, vocab_size: 700}\ndata: {text: python-stdlib}"
    (step,) = resolve(text).prepare
    assert step.argv[step.argv.index("--vocab-size") + 1] == "700"


def test_text_is_prepared_by_a_step_and_read_from_the_run_directory(resolve: Resolve) -> None:
    plan = resolve()
    (step,) = plan.prepare
    settings = plan.config["settings"]
    assert step.argv[1:3] == ("-m", "primus_data.training.prepare")
    assert settings["dataloader.dataset"] == "primus_indexed"
    assert settings["hf_assets_path"] == step.argv[step.argv.index("--out") + 1]
    train = plan.config["samples"]["train"]
    assert train == {"blend": [[None, f"{settings['hf_assets_path']}/train"]], "seed": 1234}


def test_without_data_the_files_that_training_reads_are_required(resolve: Resolve) -> None:
    plan = resolve("model: {family: llama3, flavor: 8B, hf_assets_path: assets/llama}\ndataloader: {dataset: c4}")
    files = [need.name for need in plan.requires if need.kind == "file"]
    assert len(files) == 1
    assert files[0].endswith("/assets/llama")


def test_a_tokenizer_that_the_catalogue_knows_is_named_with_the_command_that_brings_it(resolve: Resolve) -> None:
    folder = "assets/hf/Llama-3.1-8B"
    plan = resolve(f"model: {{family: llama3, flavor: 8B, hf_assets_path: {folder}}}\ndataloader: {{dataset: c4}}")
    [need] = [need for need in plan.requires if need.kind == "file"]
    assert f"hf download meta-llama/Llama-3.1-8B --include '*token*' --local-dir {folder}\n" in need.fix


def test_a_folder_without_a_tokenizer_is_none(resolve: Resolve, tmp_path: Path) -> None:
    def needed() -> list[str]:
        plan = resolve(
            f"model: {{family: llama3, flavor: 8B, hf_assets_path: {tmp_path}}}\ndataloader: {{dataset: c4}}"
        )
        return [need.name for need in plan.requires if need.kind == "file"]

    assert needed() == [f"{tmp_path}/tokenizer.json"]
    (tmp_path / "vocab.json").touch()
    assert needed() == [f"{tmp_path}"]


def test_a_machine_without_gpu_trains_in_float32_and_compiles_no_masks(resolve: Resolve) -> None:
    plan = resolve(ranks=2)
    variables = {variable.name: variable.value for variable in plan.environment}
    assert plan.config["settings"]["training.mixed_precision_param"] == "float32"
    assert variables["TORCHDYNAMO_DISABLE"] == "1"
    assert variables["OMP_NUM_THREADS"] == "4"


def test_a_machine_with_gpus_keeps_torchtitans_defaults(resolve: Resolve) -> None:
    plan = resolve(gpus=1)
    assert "training.mixed_precision_param" not in plan.config["settings"]
    assert not plan.environment


def test_hidden_gpus_are_no_gpus(resolve: Resolve) -> None:
    assert resolve(gpus=8, environ={"HIP_VISIBLE_DEVICES": ""}).config["device"] == "cpu"


def test_what_a_person_sets_is_not_overruled(resolve: Resolve) -> None:
    text = BASE + "training: {mixed_precision_param: bfloat16}\nparallelism: {spmd_backend: spmd_types}"
    settings = resolve(text).config["settings"]
    assert settings["training.mixed_precision_param"] == "bfloat16"
    assert settings["parallelism.spmd_backend"] == "spmd_types"


def test_with_pipeline_parallelism_the_last_stages_first_rank_reports(resolve: Resolve) -> None:
    plan = resolve(BASE + "parallelism: {pipeline_parallel_degree: 2}", ranks=4)
    assert plan.metrics_rank == plan.config["metrics_rank"] == 2


def test_experts_that_ranks_cannot_share_equally_are_refused(resolve: Resolve) -> None:
    """TorchTitan's token exchange gives each rank as many experts."""
    text = "model: {family: deepseek_v3, flavor: debugmodel}\ndata: {text: python-stdlib}\nparallelism: "
    assert resolve(text + "{expert_parallel_degree: 4}", ranks=4)
    assert "expert parallelism 3 does not divide 8 experts" in refused(
        resolve, text + "{expert_parallel_degree: 3}", ranks=3
    )


def test_a_third_partys_module_is_a_family(resolve: Resolve) -> None:
    text = "model: {family: my_models.llama, flavor: tiny}\ndataloader: {dataset: c4}"
    assert ("module", "my_models") in [(need.kind, need.name) for need in resolve(text).requires]


def test_what_chooses_kernels_of_amds_primus_is_said_and_fp8_attention_is_refused(resolve: Resolve) -> None:
    model = "model: {family: llama3, flavor: 8B}\n"
    kernels = "primus_turbo: {enable_primus_turbo: true, use_turbo_attention: true, enable_attention_float8: false}\n"
    plain, with_them = resolve(model, ranks=2, gpus=2), resolve(model + kernels, ranks=2, gpus=2)
    assert with_them.config["settings"] == plain.config["settings"]
    [note] = [note for note in with_them.notes if "AMD's Primus" in note]
    assert note.endswith(": primus_turbo.use_turbo_attention")
    with pytest.raises(ConfigError, match="enable_attention_float8' cannot be True"):
        resolve(model + "primus_turbo: {enable_attention_float8: true}\n")


RAW = """
model: {family: llama3, dim: 64, n_layers: 4, n_heads: 4, vocab_size: 1024}
data: {input: shards/*.jsonl, tokenizer_model: tokenizer.json, split: '98,2'}
"""


def test_raw_text_is_tokenized_by_a_step_and_divided(resolve: Resolve, tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    plan = resolve(RAW)
    [step] = plan.prepare
    assert step.argv[1:3] == ("-m", "primus_data.training.prepare_input")
    said = " ".join(step.argv)
    assert "--model-vocab-size 1024 --json-key text --tokenizer-type HuggingFaceTokenizer" in said
    assert f"--tokenizer-model {tmp_path}/tokenizer.json --append-eod --input {tmp_path}/shards/*.jsonl" in said
    blend, split = [[None, f"{plan.config['settings']['dump_folder']}/data/corpus_text_document"]], [98.0, 2.0]
    assert plan.config["samples"] == {
        "train": {"blend": blend, "split": split, "seed": 1234},
        "validation": {"blend": blend, "split": split, "part": 1, "seed": 1234},
    }
    assert [need.name for need in plan.requires if need.kind == "file"] == [
        f"{tmp_path}/shards/*.jsonl",
        f"{tmp_path}/shards",
        f"{tmp_path}/tokenizer.json",
    ]


def test_prepared_data_are_read_where_they_are(resolve: Resolve, tmp_path: Path) -> None:
    text = RAW.partition("data:")[0] + "data: {train_data_path: 0.7 web 0.3 books, valid_data_path: [held], seed: 7}\n"
    plan = resolve(text)
    assert plan.prepare == ()
    assert plan.config["samples"] == {
        "train": {"blend": [[0.7, f"{tmp_path}/web"], [0.3, f"{tmp_path}/books"]], "split": [1.0], "seed": 7},
        "validation": {"blend": [[None, f"{tmp_path}/held"]], "seed": 7},
    }
    files = [need.name for need in plan.requires if need.kind == "file"]
    assert files == [f"{tmp_path}/{name}.{end}" for name in ("web", "books", "held") for end in ("bin", "idx")]
    for name, last in (("web", 7), ("books", 7), ("held", 1024)):
        write_indexed(tmp_path / name, [[1, 2, last]])
    with pytest.raises(MachineError, match="held' cannot be trained on") as caught:
        resolve(text)
    assert caught.value.why == "it has the token 1024, but the vocabulary of the model has 1024 (0 to 1023)"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("{input: a.jsonl}", "`data` has no `tokenizer_model`"),
        ("{input: a.jsonl, tokenizer_model: t, tokenizer_type: HuggingFaceTokeniser}", "there is no tokenizer"),
        ("{input: a.jsonl, tokenizer_model: t, text: python-stdlib}", "'data.text' and 'data.input' both set"),
        (
            "{input: a.jsonl, tokenizer_model: t, text: python-stdlib}",
            "to train on data.text: data.input=null data.tokenizer_model=null",
        ),
        ("{input: a.jsonl, tokenizer_model: t, vocab_size: 512}", "'data.vocab_size' does not go with 'data.input'"),
        ("{input: a.jsonl, document_chars: 9, vocab_size: 512}", "'data.document_chars' and 'data.vocab_size' do not"),
        ("{train_data_path: a, cache: c}", "'data.cache' does not go with 'data.train_data_path'"),
        (
            "{text: python-stdlib, split: '98,2'}",
            "data.split=null\n       or set data.input and data.tokenizer_model, without data.text: data.text=null",
        ),
        ("{train_data_path: a.bin}", "'data.train_data_path' names 'a.bin'"),
        ("{train_data_path: [0, a, 1, b]}", "gives 'a' the weight 0"),
        ("{train_data_path: [1, a, b]}", "has 1 where a path should be"),
        ("{train_data_path: a, split: '98,x'}", "'data.split' is '98,x'"),
        ("{tokenizer_model: t}", "'data.tokenizer_model' is set, and there is no 'data.input'"),
        ("{split: '98,2'}", "'data.split' is set, and there is no 'data.input'"),
        ("{path: a}", "fix: set one of data.input, data.train_data_path"),
        ("{dataset: a}", "has no setting 'data.dataset'\n  fix: did you mean 'data.input'?"),
        ("{valid_data_path: t}", "'data.valid_data_path' is set, and there is no 'data.train_data_path'"),
    ],
)
def test_data_that_contradict_themselves_are_refused(resolve: Resolve, data: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(expected)):
        resolve(RAW.partition("data:")[0] + f"data: {data}\n")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("corpus.jsonl", b"{}", "corpus.jsonl' is not a folder"),
        ("folder/latin.txt", b"caf\xe9", "there is no text in"),
        ("folder/text.csv", b"a", "there is no text in"),
        ("folder/large.txt", b"x" * ((1 << 20) + 1), "left out: 1 larger than 1 MiB (large.txt)"),
        ("folder/large.md", b"x" * ((1 << 20) + 1), "data.text=null data.vocab_size=null data.input="),
        ("folder/text.txt", b"a", ""),
    ],
)
def test_text_is_a_folder_with_some(resolve: Resolve, tmp_path: Path, name: str, text: bytes, expected: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(text)
    data = f"data: {{text: {tmp_path / name.partition('/')[0]}, vocab_size: 1024}}\n"
    if expected:
        with pytest.raises(ConfigError, match=re.escape(expected)):
            resolve(RAW.partition("data:")[0] + data)
    else:
        assert resolve(RAW.partition("data:")[0] + data).prepare


def test_a_validation_without_data_is_refused(resolve: Resolve, tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards/a.jsonl").write_text("")
    with pytest.raises(ConfigError, match="there is no data for the validation"):
        resolve(RAW.replace(", split: '98,2'", "") + "validator: {enable: true}\n")
    assert resolve(RAW + "validator: {enable: true}\n").prepare


def test_a_dataset_of_torchtitan_and_data_are_refused(resolve: Resolve) -> None:
    with pytest.raises(ConfigError, match=r"'dataloader.dataset' and the section `data` both set the training data"):
        resolve(RAW + "dataloader: {dataset: c4}\n")
    assert resolve(RAW + "dataloader: {dataset: null}\n").prepare, "as the fix says, for that of a template"
    text = RAW.partition("data:")[0] + "data: {text: python-stdlib}\n"
    with pytest.raises(ConfigError) as caught:
        resolve(text + "dataloader: {dataset: c4}\nhf_assets_path: assets\n")
    both = [one for one in caught.value.each() if "both set the training data" in str(one)]
    assert len(both) == 2, "the tokenizer is that of the text, too"
    assert resolve(text + "dataloader: {dataset: null}\nhf_assets_path: null\n").prepare


def test_workers_that_torchtitans_own_loader_would_start_are_noted(resolve: Resolve) -> None:
    notes = resolve(RAW + "dataloader: {num_workers: 2}\n").notes
    assert "ignored, because Primus reads the data in the worker: dataloader.num_workers" in notes
