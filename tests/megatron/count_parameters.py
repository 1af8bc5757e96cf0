"""Prints how many parameters Megatron's model has for each set of resolved settings: python -m tests.megatron.count_parameters JSON.

The models are built on the meta device, which has no memory, and of layers that are alike one is built: Megatron lists
the layers of the whole model, and each counts as the one that was built of its kind.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def one_rank(device: str) -> None:
    """One rank that is all of them; on the device `meta`, without memory."""
    import torch

    from primus_megatron.patches import apply_all

    apply_all()
    torch.cuda.current_device = lambda: torch.device(device)
    torch.set_default_device(device)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed

    parallel_state.initialize_model_parallel()
    model_parallel_cuda_manual_seed(1, force_reset_rng=True)


def arguments(settings: dict[str, Any]) -> Any:
    """The settings as Megatron's own parser and checks leave them."""
    from megatron.training import arguments, global_vars

    sys.argv = sys.argv[:1]

    def defaults(parser: Any) -> Any:
        parser.set_defaults(**settings, perform_initialization=False)
        return parser

    args = arguments.parse_args(defaults)
    arguments.validate_args(args)
    global_vars.set_args(args)
    global_vars._GLOBAL_TOKENIZER = SimpleNamespace(vocab_size=args.padded_vocab_size)  # nothing is downloaded here
    return args


def build_one_of_a_kind() -> None:
    """Let Megatron build each kind of layer once, and note the kind of every layer of the model."""
    from megatron.core.transformer.transformer_block import TransformerBlock

    build_all = TransformerBlock._build_layers  # nothing public is between the list and the layers

    def build(block: Any) -> None:
        every = [id(spec) for spec in block.submodules.layer_specs]
        kinds = {id(spec): spec for spec in block.submodules.layer_specs}
        block.submodules = replace(block.submodules, layer_specs=list(kinds.values()))
        layers, block.config.num_layers = block.config.num_layers, len(kinds)  # the last one brings the final norm
        build_all(block)
        block.config.num_layers = layers
        block.kinds = [list(kinds).index(kind) for kind in every]

    TransformerBlock._build_layers = build


def count(settings: dict[str, Any]) -> dict[str, int]:
    """Parameters of the layers and what is around them, and those of the MTP layers."""
    from primus_megatron.model import model_provider

    arguments(settings)
    model = model_provider()
    layers = [size(layer) for layer in model.decoder.layers]
    mtp = size(model.mtp) if hasattr(model, "mtp") else 0
    return {"total": size(model) - mtp - sum(layers) + sum(layers[kind] for kind in model.decoder.kinds), "mtp": mtp}


def size(module: Any) -> int:
    """With the bias that balances experts, which Megatron moves by a rule and stores."""
    biases = [buffer for name, buffer in module.named_buffers() if name.endswith("expert_bias")]
    return sum(tensor.numel() for tensor in (*module.parameters(), *biases))


if __name__ == "__main__":
    asked = json.loads(Path(sys.argv[1]).read_text())
    one_rank("meta")
    build_one_of_a_kind()
    print(json.dumps({name: count(settings) for name, settings in asked.items()}))
