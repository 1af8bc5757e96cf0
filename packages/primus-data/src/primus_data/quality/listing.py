"""The steps that there are, as text."""

from __future__ import annotations

from collections.abc import Iterator

from primus_data.quality.catalog import STEPS, Parameter, Step

__all__ = ["listed"]


def listed() -> str:
    """Every step with its parameters."""
    return "\n\n".join("\n".join(_lines(step)) for step in STEPS) + "\n"


def _lines(step: Step) -> Iterator[str]:
    yield f"{step.name}: {step.summary}"
    yield f"  source: {step.source}"
    if step.main:
        yield f"  short form: `- {step.name}: VALUE` sets {step.main}"
    width = max((len(_head(parameter)) for parameter in step.parameters), default=0)
    for parameter in step.parameters:
        yield f"    {_head(parameter):{width}}  {parameter.help}{_bounds(parameter)}"


def _head(parameter: Parameter) -> str:
    return f"{parameter.name}: {_default(parameter)}"


def _default(parameter: Parameter) -> str:
    value = parameter.default
    if value is None:
        return "(required)"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value}" if value not in ("", ()) else "(none)"


def _bounds(parameter: Parameter) -> str:
    if parameter.kind == "float" or (parameter.kind == "int" and (parameter.high < 1e9 or parameter.low)):
        return f" ({parameter.low:g} to {parameter.high:g})" if parameter.high < 1e9 else f" (from {parameter.low:g})"
    return ""
