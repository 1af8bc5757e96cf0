"""Linear layers and experts that Primus-Turbo computes in FP8, one scale a tensor. Runs in the worker.

As in AMD's Primus: layers with a size that 128 does not divide stay as they are, and so do gates and the output layer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

__all__ = ["with_fp8"]

_KEPT = ("gate", "output", "lm_head")
_MULTIPLE = 128


def with_fp8(spec: Any, parts: Collection[str]) -> Any:
    """Return the `ModelSpec` with these parts, `linear` and `experts`, in FP8."""
    if not parts:
        return spec
    from torchtitan.models.common.linear import Linear
    from torchtitan.models.common.moe import GroupedExperts

    model = spec.model
    if "linear" in parts:
        for name, config, parent, key in model.traverse(Linear.Config):
            if _is_converted(name, config):
                _put(parent, key, _linear(config))
    if "experts" in parts:
        for _, config, parent, key in model.traverse(GroupedExperts.Config):
            _put(parent, key, _experts(config))
    return dataclasses.replace(spec, model=model)


def _is_converted(name: str, config: Any) -> bool:
    last = name.rpartition(".")[2]
    return not any(word in last for word in _KEPT) and not (
        config.in_features % _MULTIPLE or config.out_features % _MULTIPLE
    )


def _put(parent: Any, key: Any, config: Any) -> None:
    if isinstance(parent, list):
        parent[key] = config
    else:
        setattr(parent, key, config)


def _quantization() -> Any:
    """Return Primus-Turbo's configuration of E4M3 with one scale a tensor; the module has had two names."""
    try:
        from primus_turbo.pytorch.core import low_precision as core
    except ImportError:
        from primus_turbo.pytorch.core import float8 as core
    return core.Float8QuantConfig(format=core.Format.E4M3, granularity=core.ScalingGranularity.TENSORWISE)


def _linear(config: Any) -> Any:
    from primus_turbo.pytorch.ops import gemm_fp8
    from torchtitan.models.common.linear import Linear

    quantization = _quantization()

    class TurboLinear(Linear):  # type: ignore[misc]
        """TorchTitan's layer, with Primus-Turbo's multiplication."""

        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(Linear.Config):  # type: ignore[misc]
            """The same as TorchTitan's."""

        def forward(self, hidden: Any) -> Any:
            rows = hidden.reshape(-1, self.in_features)
            found = gemm_fp8(
                rows, self.weight, trans_a=False, trans_b=True, out_dtype=hidden.dtype, config=quantization
            )
            if self.bias is not None:
                found = found + self.bias
            return found.view(*hidden.shape[:-1], self.out_features)

    return _copied(config, TurboLinear.Config)


def _experts(config: Any) -> Any:
    import torch
    from primus_turbo.pytorch.ops import grouped_gemm_fp8

    quantization, theirs = _quantization(), type(config)._owner  # noqa: SLF001  # TorchTitan's converters ask so, too

    class TurboExperts(theirs):  # type: ignore[misc, valid-type]
        """The experts of the family, with Primus-Turbo's multiplication."""

        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(type(config)):  # type: ignore[misc]
            """The same as the family's."""

        def _grouped_mm(self, *, A: Any, B_t: Any, offs: Any) -> Any:  # noqa: N803  # TorchTitan's names
            lengths = torch.diff(offs, prepend=offs.new_zeros(1)).to(torch.int64)
            return grouped_gemm_fp8(A, B_t.transpose(-2, -1), group_lens=lengths, trans_b=True, config=quantization)

    return _copied(config, TurboExperts.Config)


def _copied(config: Any, kind: Any) -> Any:
    return kind(**{field.name: getattr(config, field.name) for field in dataclasses.fields(config) if field.init})
