"""What `data verify` prints."""

from __future__ import annotations

import textwrap

from primus_data.verification.findings import Report
from primus_machine.text import printable
from primus_machine.units import counted

__all__ = ["text"]


def text(found: Report, width: int) -> str:
    """All findings, then what was checked and what was not."""
    name = printable(found.prefix)
    amount = f"{found.documents:,} documents, {found.sequences:,} sequences, {found.tokens:,} tokens"
    if found.largest_token is not None:
        amount += f", largest id {found.largest_token:,}"
    valid = "valid, as far as it was checked" if found.unchecked else "valid"
    verdict = counted(len(found.findings), "finding") if found.findings else valid
    lines = [f"{name}: {verdict}", *_item("  ", amount, width)]
    for one in found.findings:
        lines += _item(f"  {one.check}: ", one.what, width)
        for example in one.examples:
            lines += _item("    ", example, width)
    lines += [line for what in found.checked for line in _item("  checked: ", what, width)]
    lines += [line for what in found.unchecked for line in _item("  not checked: ", what, width)]
    return "\n".join(lines) + "\n"


def _item(label: str, what: str, width: int) -> list[str]:
    return textwrap.wrap(
        label + printable(what),
        width,
        subsequent_indent=" " * (len(label) - len(label.lstrip()) + 2),
        break_on_hyphens=False,
        drop_whitespace=True,
    )
