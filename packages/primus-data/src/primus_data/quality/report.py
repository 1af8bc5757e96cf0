"""What a pipeline did: a table for the terminal, `report.md`, `report.json`, and `samples/` of what was removed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from primus_data.quality.pipeline import Pipeline
from primus_data.quality.stages import Stage, buckets
from primus_data.quality.tally import merged
from primus_machine.files.atomic import write_atomically
from primus_machine.text import printable

__all__ = ["collected", "table", "write"]

_HEADERS = ("step", "documents in", "removed", "out", "characters out", "reasons and replacements")
_MOST_REASONS = 6


def collected(
    pipeline: Pipeline,
    identity: Mapping[str, Any],
    done: Sequence[tuple[Stage, Sequence[Mapping[str, Any]]]],
) -> dict[str, Any]:
    """The report as data: the results of all tasks, step by step."""
    results = [result for _, parts in done for result in parts]
    read = merged((one["read"] for one in results if "read" in one), pipeline.samples)
    steps = []
    for number, use in enumerate(pipeline.steps):
        parts = (one["steps"][str(number)] for one in results if str(number) in one.get("steps", {}))
        parameters = {**use.values, **_chosen(use.name, use.values)}
        steps.append(_step(use.name, merged(parts, pipeline.samples), parameters))
    evaluations = {path: found for one in results for path, found in one.get("evaluations", {}).items()}
    return {
        "schema": 1,
        "input": _step("read", read, {}),
        "steps": steps,
        "evaluations": evaluations,
        "pipeline": identity,
    }


def _chosen(name: str, values: Mapping[str, Any]) -> dict[str, int]:
    """What follows from the parameters."""
    if name != "near_dedup":
        return {}
    return dict(zip(("buckets", "hashes_per_bucket"), buckets(values["threshold"], values["hashes"]), strict=True))


def _step(name: str, tally: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    removed = tally["removed"]
    lost = [sum(counts[index] for counts in removed.values()) for index in (0, 1)]
    return {
        "step": name,
        "parameters": dict(parameters),
        "documents_in": tally["documents"],
        "characters_in": tally["characters"],
        "documents_out": tally["documents"] - lost[0],
        "characters_out": tally["characters"] - lost[1] - tally["edited_characters"],
        "removed": {
            reason: {"documents": counts[0], "characters": counts[1]}
            for reason, counts in sorted(removed.items(), key=lambda one: (-one[1][0], one[0]))
        },
        "edited_documents": tally["edited"],
        "edits": dict(sorted(tally["edits"].items())),
        "samples": [sample for _, samples in sorted(tally["samples"].items()) for sample in samples],
    }


def _rows(report: Mapping[str, Any]) -> Iterator[list[str]]:
    for step in [report["input"], *report["steps"]]:
        removed = step["documents_in"] - step["documents_out"]
        numbers = (step["documents_in"], removed, step["documents_out"], step["characters_out"])
        yield [step["step"], *(f"{number:,}" for number in numbers), _reasons(step)]


def _reasons(step: Mapping[str, Any]) -> str:
    found = [f"{printable(reason)} {counts['documents']:,}" for reason, counts in step["removed"].items()]
    if len(found) > _MOST_REASONS:
        found = [*found[:_MOST_REASONS], f"{len(found) - _MOST_REASONS} more reasons"]
    if step["edits"]:
        edits = ", ".join(f"{printable(what)} {count:,}" for what, count in step["edits"].items())
        found.append(f"{edits} in {step['edited_documents']:,} documents")
    return ", ".join(found)


def table(report: Mapping[str, Any], kind: str = "simple") -> str:
    """A line for each step."""
    from tabulate import tabulate

    align = ("left", "right", "right", "right", "right", "left")
    return str(tabulate(list(_rows(report)), _HEADERS, tablefmt=kind, disable_numparse=True, colalign=align))


def write(report: Mapping[str, Any], folder: str) -> None:
    """`report.json`, `report.md` and the samples."""
    os.makedirs(f"{folder}/samples", exist_ok=True)
    whole = {**report, "input": _without_samples(report["input"])}
    whole["steps"] = [_without_samples(step) for step in report["steps"]]
    for number, step in enumerate([report["input"], *report["steps"]]):
        if step["samples"]:
            lines = "".join(f"{json.dumps(sample)}\n" for sample in step["samples"])  # ASCII: no escape sequence is raw
            write_atomically(f"{folder}/samples/{number:02d}-{step['step']}.jsonl", lines)
    write_atomically(f"{folder}/report.json", f"{json.dumps(whole, indent=1)}\n")
    write_atomically(f"{folder}/report.md", _markdown(report))


def _without_samples(step: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in step.items() if key != "samples"}


def _markdown(report: Mapping[str, Any]) -> str:
    parts = ["# What the pipeline removed\n", table(report, "github")]
    for path, found in report["evaluations"].items():
        short = f"; {found['too_short']:,} of them are too short to be found" if found["too_short"] else ""
        parts.append(f"\n`{printable(path)}`: {found['records']:,} records searched for{short}.")
    for step in [report["input"], *report["steps"]]:
        seen: set[str] = set()
        for sample in step["samples"]:
            if sample["reason"] not in seen:
                seen.add(sample["reason"])
                parts.append(_shown(step["step"], sample))
    versions = ", ".join(f"{name} {version}" for name, version in report["pipeline"]["versions"].items())
    return "\n".join([*parts, f"\nVersions: {versions}.\n"])


def _shown(step: str, sample: Mapping[str, Any]) -> str:
    twin = f", the same as `{printable(sample['same_as'])}`" if "same_as" in sample else ""
    lines = [f"\n## {step}: {printable(sample['reason'])}\n", f"`{printable(sample['source'])}`{twin}\n"]
    keys = (key for key in ("found", "before", "after", "text") if key in sample)
    return "\n".join([*lines, *(f"    {key}: {printable(sample[key][:300])}" for key in keys)])
