"""Ranks that hold the same piece of a parameter must hold the same numbers, to the bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from primus_core.errors import MachineError
from primus_train.kit.replicas import FOLDER, WANTED, Copy, record
from primus_verify.replicas import differences


def wrote(run: Path, monkeypatch: pytest.MonkeyPatch, rank: int, *parts: tuple[str, str, bytes]) -> None:
    """A rank that holds these names, pieces and bytes."""
    monkeypatch.setenv("PRIMUS_RUN_DIR", str(run))
    monkeypatch.setenv("RANK", str(rank))
    record(lambda: (Copy(name, piece, rank, data) for name, piece, data in parts))


def test_ranks_that_agree_give_no_finding_and_unequal_pieces_are_no_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WANTED, "1")
    for rank in range(2):
        wrote(tmp_path, monkeypatch, rank, ("norm", "", b"same"), ("linear", f"{rank}", f"piece {rank}".encode()))
    assert differences(str(tmp_path), 3, 2) == []


def test_each_rank_must_have_recorded_what_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody wrote is not equal."""
    with pytest.raises(MachineError, match="0 of 2 ranks recorded what they hold after step 3"):
        differences(str(tmp_path / "no such run"), 3, 2)
    monkeypatch.setenv(WANTED, "1")
    wrote(tmp_path, monkeypatch, 0, ("norm", "", b"same"))
    wrote(tmp_path, monkeypatch, 2, ("norm", "", b"same"))
    with pytest.raises(MachineError) as error:
        differences(str(tmp_path), 3, 3)
    assert error.value.why == "nothing is known of rank 1"


def test_ranks_that_differ_are_named_with_the_kind_of_parameter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WANTED, "1")
    for rank in range(3):
        data = b"other" if rank == 1 else b"same"
        wrote(tmp_path, monkeypatch, rank, ("layers.0.norm", "", data), ("layers.1.norm", "", data), ("head", "", b"x"))
    [found] = differences(str(tmp_path), 3, 3)
    assert found.text.startswith("copies of layers.*.norm differ between ranks 0, 2 and rank 1, after step 3: ")
    assert found.names == ("layers.0.norm", "layers.1.norm")


def test_generators_of_ranks_that_divide_a_tensor_must_differ_and_those_of_copies_be_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WANTED, "1")

    def states(run: Path, *of_ranks: bytes) -> list[str]:
        monkeypatch.setenv("PRIMUS_RUN_DIR", str(run))
        run.mkdir()
        for rank, state in enumerate(of_ranks):
            monkeypatch.setenv("RANK", str(rank))
            record(lambda rank=rank, state=state: [Copy("generator", f"tp {rank % 2}", rank, state, is_random=True)])  # type: ignore[misc]
        return [one.text for one in differences(str(run), 3, len(of_ranks))]

    assert states(tmp_path / "right", b"a", b"b", b"a", b"b") == []
    [same] = states(tmp_path / "same", b"a", b"a")
    assert same.startswith("generator has the same state on rank 0 and rank 1, after step 3: they drop out the same")
    [other] = states(tmp_path / "other", b"a", b"b", b"c", b"b")
    assert other.startswith("copies of generator differ between rank 0 and rank 2, after step 3")


def test_nothing_is_recorded_unless_verify_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WANTED, raising=False)
    wrote(tmp_path, monkeypatch, 0, ("norm", "", b"x"))
    assert not (tmp_path / FOLDER).exists()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "0.json").write_text(json.dumps([])[:1])
    with pytest.raises(MachineError, match=r"replicas/0\.json cannot be read"):
        differences(str(tmp_path), 3, 1)
