"""Which parts of a model AMD's settings ask to compute in FP8, and what of them cannot be done."""

from __future__ import annotations

from primus_torchtitan.settings import Settings

__all__ = ["check_turbo", "fp8_parts"]

_LINEAR = "quantize.linear.float8"


def fp8_parts(settings: Settings) -> list[str]:
    """Return the parts that Primus-Turbo computes in FP8: `linear`, `experts`."""
    enabled = settings["primus_turbo.enable_primus_turbo"]
    linear = _LINEAR in (settings["converters"] or ()) and settings["primus_turbo.use_turbo_float8_linear"]
    experts = settings["primus_turbo.use_turbo_grouped_mm"] and settings["primus_turbo.use_moe_fp8"]
    return [name for name, asked in (("linear", linear), ("experts", experts)) if enabled and asked]


def check_turbo(settings: Settings) -> None:
    """Refuse FP8 linear layers of another kind: TorchTitan 0.3 has no converter with one scale a tensor.

    Raises:
        ConfigError: the converter is there, and Primus-Turbo's layers are not asked for.
    """
    if _LINEAR in (settings["converters"] or ()) and "linear" not in fp8_parts(settings):
        what = f"'{_LINEAR}' needs primus_turbo.enable_primus_turbo and primus_turbo.use_turbo_float8_linear"
        why = "TorchTitan 0.3 has no FP8 linear layers with one scale a tensor"
        fix = "set both to true; or, without FP8, name the model without -fp8, or set model.converters: [] in the file"
        raise settings.error("converters", what, why=why, fix=fix)
