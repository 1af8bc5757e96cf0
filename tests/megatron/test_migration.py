"""What Megatron renamed and removed: the table fits the lists of settings that the package ships."""

from __future__ import annotations

import pytest

pytest.importorskip("primus_megatron", reason="primus-megatron needs Python 3.12: hatch run megatron:test")

from primus_megatron.backend import MEGATRON
from primus_megatron.migration import _ROWS
from primus_train.migration import Fate, read_rows


def test_every_new_name_is_one_of_the_newest_version_and_no_old_one_is() -> None:
    migration = MEGATRON.migration("0.19")
    for name, row in read_rows(_ROWS).items():
        assert name not in migration.known
        assert "gone" in row or row["to"] in migration.known


def test_renamed_arguments_keep_their_name_in_an_earlier_version() -> None:
    assert MEGATRON.migration("0.17").fate("muon_use_nesterov", True) is None
    found = MEGATRON.migration("0.19").fate("muon_use_nesterov", True)
    assert found == Fate(to="muon_nesterov", why="renamed in megatron-core 0.18")
    later = MEGATRON.migration("0.17").fate("mtp_detach_heads", True)
    assert later
    assert later.why == "megatron-core has it since 0.19.2"


def test_a_removed_argument_says_in_which_version() -> None:
    found = MEGATRON.migration("0.19").fate("rl_generation_batch_size", 4)
    assert found
    assert (found.to, found.why) == ("", "removed from megatron-core in 0.19.2")


def test_settings_of_amds_fork_are_those_of_its_table() -> None:
    migration = MEGATRON.migration("0.19")
    found = migration.fate("pp_warmup", True)
    assert found
    assert found.why == "it only tunes the speed of AMD's fork"
