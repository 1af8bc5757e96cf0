"""One model for people and as JSON: facts, parameters by part, FLOPs per token, matrices, sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any

from primus_train.models.architecture import Architecture, Model
from primus_train.models.arithmetic import Counts, flops_per_token, matrices, parameters

__all__ = ["as_data", "as_text"]


def as_data(model: Model, seq_length: int) -> dict[str, Any]:
    """The model as JSON shows it."""
    facts, counts = model.facts, parameters(model.facts)
    flops = flops_per_token(facts, seq_length)
    return {
        "name": model.name,
        "aliases": facts.aliases,
        "family": model.family,
        "origin": model.origin,
        "where": model.where,
        "hf": facts.hf,
        "source": facts.source,
        "note": facts.note,
        "facts": _facts(model),
        "parameters": {**_counts(counts), "known": facts.parameters, "published": facts.published},
        "flops_per_token": {"seq_length": seq_length, "total": sum(flops.values()), "parts": flops},
        "matrices": [matrix._asdict() for matrix in matrices(facts)],
    }


def _counts(counts: Counts) -> dict[str, Any]:
    return {"total": counts.total, "active": counts.active, "mtp": counts.mtp, "parts": dict(counts.parts)}


def _facts(model: Model) -> dict[str, Any]:
    """Facts of the architecture, the usual ones too; what a model does not have is left out."""
    facts = asdict(model.facts)
    return _known({field.name: facts[field.name] for field in fields(Architecture)})


def _known(facts: Mapping[str, Any]) -> dict[str, Any]:
    known = {key: value for key, value in facts.items() if value is not None}
    return {key: _known(value) if isinstance(value, Mapping) else value for key, value in known.items()}


def as_text(model: Model, seq_length: int) -> str:
    """The model on a screen."""
    facts, counts = model.facts, parameters(model.facts)
    flops = flops_per_token(facts, seq_length)
    head = {"family": model.family, "kind": model.kind, "published": facts.published, "note": facts.note,
            "also called": ", ".join(facts.aliases), "from": f"{model.origin}, {model.where}"}  # fmt: skip
    active = f"{counts.active:,} of them work on a token" if counts.active != counts.total else ""
    mtp = f"{counts.mtp:,} more in MTP layers" if counts.mtp else ""
    return "\n".join((
        model.name,
        *_lines({key: text for key, text in head.items() if text}),
        *(f"  {'source' if not number else '':<36}{text}" for number, text in enumerate(facts.source)),
        "\nfacts",
        *_lines(dict(_flat(_facts(model)))),
        "\n" + "; ".join(filter(None, (f"parameters: {counts.total:,}", active, mtp))),
        *_shares(counts.parts),
        f"\nFLOPs per token, forward and backward, at {seq_length:,} tokens: {sum(flops.values()):,}",
        *_shares(flops),
        *_window(facts, seq_length),
        "\nmatrices: inputs x outputs, how many (of which a token passes)",
        *(f"  {m.name:<36}{m.inputs} x {m.outputs}, {_number(m.stored, m.used)}" for m in matrices(facts)),
    )) + "\n"  # fmt: skip


def _window(facts: Architecture, seq_length: int) -> Iterator[str]:
    """What a person must know who compares an MFU by these FLOPs with another one."""
    size = facts.sliding_window or facts.attention_chunk
    if size and size < seq_length:
        yield f"  Attention counts the {size:,} tokens of a layer's window, and Megatron the whole sequence:"
        yield "  at the same speed, its MFU is higher than the one here."


def _number(stored: int, used: int) -> str:
    if not stored:
        return "the embedding's"
    return f"{stored}" if stored == used else f"{stored} ({used})"


def _lines(rows: Mapping[str, str]) -> Iterable[str]:
    return (f"  {key:<36}{text}" for key, text in rows.items())


def _flat(facts: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """`moe.num_experts`, `256`."""
    for key, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", str(value).lower() if isinstance(value, bool) else str(value)


def _shares(parts: Mapping[str, int]) -> Iterable[str]:
    total = sum(parts.values())
    return (f"  {part:<32}{count:>22,}  {count / total:6.1%}" for part, count in parts.items())
