"""How `verify` makes small trainings of a TorchTitan experiment, which it can compare (`primus.verifiers`)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from primus_core.config.document import Document, dotted
from primus_core.errors import Mistakes
from primus_torchtitan import earlier_names, small_experts
from primus_torchtitan.schema import load, shipped
from primus_torchtitan.small_experts import FAMILIES, FIXED_HEADS, GROUPS_OF_EXPERTS, SmallModel
from primus_train.kit.alike import BATCH, alike, batch_of, degrees_of, refuse_remainder
from primus_train.kit.left_out import NO_AXIS, NO_FP8, left_out
from primus_train.kit.neutral import in_halves
from primus_train.templates.recipe import leaves

if TYPE_CHECKING:
    from primus_train.models.architecture import Architecture

__all__ = ["VERIFIER", "TorchTitanVerifier"]

_SEQUENCE = 256
"""Context parallelism over two ranks needs two blocks of 128 tokens."""
_VOCABULARY, _HEAD = 512, 16
_MICRO_BATCH = 2
_SIZED = ("llama3", "qwen3")
_KEPT = ("loss", "debug")
"""Sections of the experiment that trials have, too."""
_KEPT_PARALLEL = (
    *("enable_sequence_parallel", "fsdp_reshard_after_forward", "context_parallel_load_balancer", "spmd_backend"),
    *("pipeline_parallel_schedule", "pipeline_parallel_microbatch_size"),
)
"""Settings of parallelism that are no degrees."""
_OPTIMIZER = ("beta1", "beta2", "eps")
_DECAY = 10.0
"""So much that an update without it differs by more than rounding."""
_TRIAL: dict[str, Any] = {
    "training": {"local_batch_size": _MICRO_BATCH,
                 "mock_data": True, "max_norm": 1e30, "dtype": "float32",
                 "mixed_precision_param": "float32", "mixed_precision_reduce": "float32"},
    "lr_scheduler": {"warmup_steps": 0, "decay_type": "linear", "min_lr_factor": 1.0},
    "activation_checkpoint": {"mode": "none"},
    "checkpoint": {"enable": True, "interval": 1, "keep_latest_k": 0, "last_save_model_only": False,
                   "async_mode": "disabled"},
    "metrics": {"log_freq": 1},
    "auto_continue_train": False,
}  # fmt: skip
_AXES = {
    "tp": "parallelism.tensor_parallel_degree",
    "sp": "parallelism.enable_sequence_parallel",
    "pp": "parallelism.pipeline_parallel_degree",
    "cp": "parallelism.context_parallel_degree",
    "dp": "parallelism.data_parallel_replicate_degree",
    "fsdp": "parallelism.data_parallel_shard_degree",
    "ep": "parallelism.expert_parallel_degree",
    "mbs": "training.local_batch_size",
    "recompute": "activation_checkpoint.mode",
    "repeat": "",
}
_LAYOUT = {
    r"parallelism\.\w+|training\.enable_cpu_offload|compile\.enable_async_tensor_parallel": NO_AXIS,
    r"activation_checkpoint\.mode": "recompute=1 computes all activations again",
    r"compile\.enable": "trials are not compiled",
    r"converters|primus_turbo\.\w*(fp8|float8)\w*": NO_FP8,
}
"""Settings that decide how ranks share the work, by patterns, and why trials do not have them."""
_OWN = {axis: setting for axis, setting in _AXES.items() if axis not in ("sp", "mbs", "recompute", "repeat")}
_MOMENT = re.compile(r"optimizer\.state\.(.+)\.(exp_avg|exp_avg_sq)")
_KINDS = {"exp_avg": "first moment", "exp_avg_sq": "second moment"}
_EXPERTS = re.compile(r"(.*\b(?:inner_)?experts)\.(.+)")
_LAYER = re.compile(r"layers\.\d+\.")
_NEUTRAL = {
    "tok_embeddings.weight": "embed_tokens.weight", "norm.weight": "norm.weight", "lm_head.weight": "lm_head.weight",
    "attention_norm.weight": "input_layernorm.weight", "ffn_norm.weight": "post_attention_layernorm.weight",
    "attention.qkv_linear.wq.weight": "self_attn.q_proj.weight", "attention.wo.weight": "self_attn.o_proj.weight",
    "attention.qkv_linear.wk.weight": "self_attn.k_proj.weight",
    "attention.qkv_linear.wv.weight": "self_attn.v_proj.weight",
    "attention.q_norm.weight": "self_attn.q_norm.weight", "attention.k_norm.weight": "self_attn.k_norm.weight",
    "feed_forward.w1.weight": "mlp.gate_proj.weight", "feed_forward.w3.weight": "mlp.up_proj.weight",
    "feed_forward.w2.weight": "mlp.down_proj.weight",
}  # fmt: skip
"""Weights of a dense Llama or Qwen 3, in a layer and outside."""
Kind = Literal["weight", "first moment", "second moment"]
Array = TypeVar("Array")


class TorchTitanVerifier:
    """See `primus_verify.contract.Verifier`."""

    format = "torch"
    imports = (
        "torch", "torch.distributed.pipelining.schedules", "torch._inductor.compile_fx",
        "torch._dynamo.repro.after_dynamo", "torch.distributed.checkpoint", "torch.utils.tensorboard", "datasets",
        "spmd_types", "tyro",
    )  # fmt: skip
    rank_axes = ("dp", "fsdp", "tp", "pp", "cp")
    layouts = (
        "repeat=1", "fsdp=2", "dp=2", "tp=2", "tp=2,sp=0", "pp=2", "cp=2", "fsdp=2,ep=2", "mbs=1", "recompute=1",
        "fsdp=2,tp=2", "tp=2,mbs=1", "fsdp=2,pp=2", "tp=2,pp=2", "dp=2,fsdp=2", "fsdp=2,cp=2", "fsdp=4",
    )  # fmt: skip
    known_differences = ()

    def packages(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """Return TorchTitan, this package, and that of a model of one's own."""
        family = str((settings.get("model") or {}).get("family", ""))
        return ("torchtitan", "primus_torchtitan", *([family.partition(".")[0]] if "." in family else ()))

    def experiment(
        self, settings: Mapping[str, Any], *, shrink: bool, layouts: Sequence[Mapping[str, int]], device: str
    ) -> dict[str, Any]:
        """Return the settings of a trial."""
        del device
        settings = _named_as_today(settings)
        model = dict(settings.get("model") or {})
        vocabulary = (settings.get("data") or {}).get("vocab_size")
        if not shrink and vocabulary and not model.get("flavor"):
            model.setdefault("vocab_size", vocabulary)
        kept = {name: dict(settings[name]) for name in _KEPT if settings.get(name)}
        given = settings.get("optimizer") or {}
        optimizer = {name: given[name] for name in _OPTIMIZER if name in given}
        parallel = settings.get("parallelism") or {}
        each = "pipeline_parallel_microbatch_size"
        micro = {each: min(parallel[each], _MICRO_BATCH)} if parallel.get(each) else {}
        context = math.lcm(*degrees_of(layouts, "cp"), 2) // 2
        chunks = int((kept.get("loss") or {}).get("num_chunks") or 1)
        pieces = math.lcm(*degrees_of(layouts, "tp", "cp"))
        length = math.lcm(_SEQUENCE * context, chunks * pieces, 2 * pieces)
        training = {**_TRIAL["training"], "seq_len": length, "global_batch_size": self.batch(layouts)}
        return {**kept, "model": _small(model, layouts) if shrink else model, **_TRIAL, "training": training,
                "parallelism": {name: parallel[name] for name in _KEPT_PARALLEL if name in parallel} | micro,
                "optimizer": {**optimizer, "weight_decay": _DECAY}}  # fmt: skip

    def own(self, settings: Mapping[str, Any]) -> dict[str, int]:
        """Return the experiment's degrees; a rest (-1) is sharded data parallelism."""
        settings = _named_as_today(settings)
        given = settings.get("parallelism") or {}
        found = {axis: given.get(name.partition(".")[2], -1 if axis == "fsdp" else 1) for axis, name in _OWN.items()}
        if found["tp"] > 1 and given.get("enable_sequence_parallel") is False:
            found["sp"] = 0
        if (settings.get("training") or {}).get("local_batch_size") == 1:
            found["mbs"] = 1
        if (settings.get("activation_checkpoint") or {}).get("mode") == "full":
            found["recompute"] = 1
        return {axis: 2 if degree == -1 else degree for axis, degree in found.items()}

    def unexpressed(self, settings: Mapping[str, Any]) -> dict[str, str]:
        """Return what no axis stands for."""
        flat = {dotted(path): value for path, value in leaves(_named_as_today(settings))}
        tried = {*_AXES.values(), *(f"parallelism.{name}" for name in _KEPT_PARALLEL)} - {_AXES["recompute"]}
        if flat.get(_AXES["recompute"]) in ("full", "none"):
            del flat[_AXES["recompute"]]
        return left_out(flat, _LAYOUT, load(list(shipped().values())[-1]).options, tried.__contains__)

    def batch(self, layouts: Sequence[Mapping[str, int]]) -> int:
        """Return the global batch size."""
        return batch_of(layouts, _sequences)

    def settings(self, layout: Mapping[str, int], batch: int = BATCH) -> dict[str, Any]:
        """Return the settings of a layout."""
        if unknown := [axis for axis in layout if axis not in _AXES]:
            raise ValueError(f"TorchTitan has no setting for {', '.join(unknown)}")
        refuse_remainder(batch, _sequences(layout))
        words: dict[str, Any] = {_AXES[axis]: degree for axis, degree in layout.items() if _AXES[axis]}
        words[_AXES["fsdp"]] = layout.get("fsdp", 1)
        words[_AXES["mbs"]] = _local(layout)
        if "sp" in layout:
            words[_AXES["sp"]] = bool(layout["sp"])
        if "recompute" in layout:
            words[_AXES["recompute"]] = "full"
        return words

    def steps(self, count: int, *, rate: float) -> dict[str, Any]:
        """Return the settings for `count` steps."""
        return {"training.steps": count, "optimizer.lr": rate}

    def seed(self, number: int) -> dict[str, Any]:
        """Return the settings of another seed."""
        return {"debug.seed": number}

    def start(self, checkpoint: str) -> dict[str, Any]:
        """Return the settings to begin with the weights of a checkpoint."""
        return {"checkpoint.initial_load_path": checkpoint, "checkpoint.initial_load_model_only": True}

    def checkpoint(self, run: str, step: int) -> str:
        """Return where TorchTitan saves a step."""
        return f"{run}/checkpoints/step-{step}"

    def same_tokens(self, length: int) -> dict[str, Any]:
        """Return the settings to train on the section `data`."""
        return {"training.mock_data": False, "training.seq_len": length}

    def neutral(self, name: str, weight: Array, model: Architecture) -> Iterator[tuple[str, Array, float]]:
        """Return the weight under Hugging Face's name. Llama's pairs of the rotary embedding are neighbours here."""
        layer = _LAYER.match(name)
        before, rest = (layer[0], name[layer.end() :]) if layer else ("", name)
        parts: list[tuple[str, Any]] = [(rest, weight)]
        if rest == "attention.qkv_linear.wqkv.weight":  # moments keep them together, for each group of heads
            value: Any = weight
            groups = value.reshape(model.num_kv_heads, -1, value.shape[-1])
            ends = (groups.shape[1] - 2 * model.head_dim, groups.shape[1] - model.head_dim)
            each = (groups[:, : ends[0]], groups[:, ends[0] : ends[1]], groups[:, ends[1] :])
            parts = [(f"attention.qkv_linear.w{letter}.weight", part.reshape(-1, value.shape[-1]))
                     for letter, part in zip("qkv", each, strict=True)]  # fmt: skip
        for part, value in parts:
            turned = model.qk_norm != "rms" and part.endswith(("wq.weight", "wk.weight"))
            yield before + _NEUTRAL[part], in_halves(value, model.head_dim) if turned else value, 1.0

    def tensors(self, stored: Mapping[str, Array]) -> Iterator[tuple[Kind, str, Array]]:
        """Return weights and moments; those of experts are stored as one array with an axis of experts."""
        for name, array in stored.items():
            moment = _MOMENT.fullmatch(name)
            if not moment and name.startswith(("optimizer.", "lr_scheduler", "dataloader", "train_state")):
                continue
            kind: Any = _KINDS[moment[2]] if moment else "weight"
            yield from _by_expert(kind, moment[1] if moment else name, array)


def _local(layout: Mapping[str, int]) -> int:
    """Return the sequences of a data-parallel rank at a time. A pipeline has a micro-batch of them for each stage."""
    return layout.get("mbs", _MICRO_BATCH * layout.get("pp", 1))


def _sequences(layout: Mapping[str, int]) -> int:
    """Of which a layout needs a multiple in a step."""
    return layout.get("dp", 1) * layout.get("fsdp", 1) * _local(layout)


def _by_expert(kind: Kind, name: str, array: Any) -> Iterator[tuple[Kind, str, Any]]:
    experts = _EXPERTS.fullmatch(name)
    if not experts or array.ndim < 2:
        yield kind, name, array
        return
    for number in range(len(array)):
        yield kind, f"{experts[1]}.{number}.{experts[2]}", array[number]


def _named_as_today(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings of TorchTitan 0.2 under their names of today; what is wrong was refused before."""
    return earlier_names.translate(Document(dict(settings), {}), Mistakes())[0].data


def _small(model: Mapping[str, Any], layouts: Sequence[Mapping[str, int]]) -> dict[str, Any]:
    """Return a small model of the same family: with grouped heads, tied embeddings and rope scaling, if it has them.

    Layouts divide its layers, heads and experts as those of the model. A module of one's own stays as it is.
    """
    family, flavor = str(model.get("family")), model.get("flavor")
    if "." in family:
        return dict(model)
    families = load(list(shipped().values())[-1]).families
    names = {name.lower(): name for name in families.get(family, {})}
    flavor = names.get(str(flavor).lower(), str(flavor))
    known = families.get(family, {}).get(flavor, {})
    attention = {"attn_backend": model["attn_backend"]} if model.get("attn_backend") else {}
    whole = {**known, **{name: value for name, value in model.items() if value is not None}}
    sizes = _divisible(whole, layouts)
    if family in FAMILIES and (family not in _SIZED or known.get("experts")):
        heads, groups = FIXED_HEADS.get(family, (sizes["n_heads"], sizes["n_kv_heads"]))
        small = SmallModel(family, flavor, sizes["n_layers"], heads, groups, _experts(known, layouts))
        return {"family": small_experts.__name__, "flavor": small.named(), **attention}
    if family not in _SIZED:
        return {"family": family, "flavor": "debugmodel", **attention}
    width = sizes["n_heads"] * _HEAD
    kept = ("weight_tying", "rope_scaling", "rope_scaling_factor", "rope_theta")
    return {
        "family": family, "dim": width, **sizes, "ffn_hidden_dim": 2 * width,
        "vocab_size": _VOCABULARY, "max_seq_len": 16 * _SEQUENCE, **({"head_dim": _HEAD} if family == "qwen3" else {}),
        **{name: whole[name] for name in kept if name in whole}, **attention,
    }  # fmt: skip


def _divisible(whole: Mapping[str, Any], layouts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return the layers, heads and groups of heads of a small model."""
    tensor, stages = degrees_of(layouts, "tp"), degrees_of(layouts, "pp", "vpp")
    heads = whole.get("n_heads") or 4
    groups = whole.get("n_kv_heads") or heads
    small_groups = alike(groups, 2 if groups < heads else 4, tensor)
    return {
        # an interleaved schedule has two stages on each rank
        "n_layers": alike(whole.get("n_layers") or 4, max(4, 2 * max(stages, default=1)), stages),
        "n_heads": alike(heads, 2 * small_groups, tensor, small_groups) if groups < heads else small_groups,
        "n_kv_heads": small_groups,
    }


def _experts(known: Mapping[str, Any], layouts: Sequence[Mapping[str, int]]) -> int:
    least = 2 * GROUPS_OF_EXPERTS  # a token goes to two of one group
    return alike(known.get("experts") or least, least, degrees_of(layouts, "ep"), GROUPS_OF_EXPERTS)


VERIFIER = TorchTitanVerifier()
