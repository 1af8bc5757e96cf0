"""A document in all forms: printed, and written to files; each says how it was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from primus_bench.report import about, files
from primus_bench.report.document import Document, as_json
from primus_bench.report.page import as_page
from primus_bench.report.received import require_right
from primus_bench.report.sheet import Sheet, as_csv, as_markdown, as_table
from primus_core.errors import Mistakes

__all__ = ["publish"]


def publish(found: Document, sheet: Sheet, outputs: Sequence[str], *, json: bool, may_lack: bool = False) -> None:
    """Print it, and write it to each of the files: to all that can be written, whatever becomes of the others.

    `may_lack`: cases that failed are in it, without any figure; the caller refuses them after the report.

    Raises:
        MachineError: one cannot be written.
        PrimusError: a result is wrong, or a figure is none; nothing is printed or written.
    """
    require_right(found.to_dict(), may_lack=may_lack)
    sheet = replace(sheet, about=about.of(found))
    print(as_json(found.to_dict()) if json else as_table(sheet), flush=True)
    forms: files.Forms = {
        ".md": lambda: as_markdown(sheet),
        ".csv": lambda: as_csv(sheet),
        ".json": lambda: as_json(found.to_dict()) + "\n",
        ".html": lambda: as_page(found, sheet),
    }
    mistakes = Mistakes()
    for path in outputs:
        with mistakes:
            files.write(path, forms)
    mistakes.refuse()
