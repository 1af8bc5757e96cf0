"""The forms of a report by the suffix of its file, each made when it is asked for."""

from __future__ import annotations

from collections.abc import Callable

from primus_page.page import as_html
from primus_report.charts import of_fleet as charts_of_fleet
from primus_report.charts import of_runs as charts_of_runs
from primus_report.figures.fleet import Fleet
from primus_report.figures.report import Report
from primus_report.figures.run import RunReport
from primus_report.writers import fleet_sections, run_sections
from primus_report.writers.data import as_json
from primus_report.writers.markdown import GENERATOR, as_markdown
from primus_report.writers.shown import clock

__all__ = ["Forms", "of_fleet", "of_runs"]

Forms = dict[str, Callable[[], str]]


def of_runs(report: Report) -> Forms:
    """Of one run, or of several."""
    title = report.runs[0].identity.name if len(report.runs) == 1 else f"{len(report.runs)} runs"
    subtitle = " · ".join(
        (*(_about(report.runs[0]) if len(report.runs) == 1 else ()), f"report of {clock(report.time)}")
    )

    def page() -> str:
        drawn = charts_of_runs.charts(report.runs, run_sections.names(report.runs))
        return as_html(title, subtitle, run_sections.sections(report, drawn), generator=GENERATOR)

    return {
        ".html": page,
        ".md": lambda: as_markdown(title, subtitle, run_sections.sections(report, ())),
        ".json": lambda: as_json(report) + "\n",
    }


def of_fleet(fleet: Fleet) -> Forms:
    """Of a workspace."""
    title, subtitle = f"Runs in {fleet.workspace}", f"report of {clock(fleet.time)}"

    def page() -> str:
        drawn = charts_of_fleet.charts(fleet)
        return as_html(title, subtitle, fleet_sections.sections(fleet, drawn), generator=GENERATOR)

    return {
        ".html": page,
        ".md": lambda: as_markdown(title, subtitle, fleet_sections.sections(fleet, ())),
        ".json": lambda: as_json(fleet) + "\n",
    }


def _about(run: RunReport) -> tuple[str, ...]:
    one = run.identity
    devices = f"{one.devices} × {one.gpu_model or 'GPU'}" if one.gpus else f"{one.devices} × CPU"
    parts = (one.status, one.failure, one.framework, one.model, devices, f"began {clock(one.started)}")
    return tuple(part for part in parts if part)
