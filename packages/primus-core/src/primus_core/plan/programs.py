"""The modules that a plan starts by name. Saved plans hold these names: they stay, or `replay.saved_plan` has them."""

from __future__ import annotations

__all__ = ["FAILURES", "OWN_TASK", "RANK", "RENDEZVOUS", "TORCHRUN"]

RANK = "primus_core.programs.rank"
RENDEZVOUS = "primus_core.programs.rendezvous"
OWN_TASK = "primus_core.programs.own_task"
TORCHRUN = "primus_core.programs.torchrun"

FAILURES = "logs/failures"
"""Folder in the run directory where `RANK` leaves one `rank_<r>.json` for each rank that failed."""
