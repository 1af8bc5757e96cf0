"""Nodes that meet: each finds the others by the run directory, measures with each, lets in nobody else, leaves nothing."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from tests.conftest import wait_until

from primus_preflight.meeting.door import ASK, WELCOME, Door
from primus_preflight.meeting.exchange import follow
from primus_preflight.meeting.peers import Card, Meeting, Place, meet

HERE = "127.0.0.1"


def met(folder: Path, ranks: range, nodes: int, wait_s: float = 60) -> list[Meeting]:
    """What came of the meeting, by rank; each node is a thread."""
    with ThreadPoolExecutor(len(ranks)) as pool:
        places = [Place(str(folder), rank, nodes, wait_s) for rank in ranks]
        return list(
            pool.map(lambda place: meet(Card(place.rank, f"n{place.rank}", HERE, gbps=place.rank + 1), place), places)
        )


@pytest.mark.parametrize(("all_pairs", "partners"), [(False, 8), (True, 11)])
def test_of_many_nodes_each_meets_some_or_where_that_is_asked_all(
    tmp_path: Path, all_pairs: bool, partners: int
) -> None:
    alone = meet(Card(0, "n0", HERE), Place(str(tmp_path), 0, 12, 0.1, all_pairs=all_pairs))
    assert (len(alone.met), alone.of) == (partners, 11)


def published(folder: Path, rank: int) -> Card:
    """Where a node listens, as soon as it says so."""
    path = folder / "peers" / f"{rank}.json"
    wait_until(path.exists)
    return Card(**json.loads(path.read_text()))


def call(card: Card, said: bytes) -> bytes:
    """What a listener answers to a caller."""
    with socket.create_connection((card.address, card.port), 20) as link:
        link.sendall(said)
        try:
            return link.recv(1)
        except ConnectionResetError:
            return b""


@pytest.mark.full
def test_each_node_measures_with_each_other_and_both_ends_say_the_same(tmp_path: Path) -> None:
    meetings = met(tmp_path, range(4), 4)
    said = {(f"n{rank}", one.name): one for rank, meeting in enumerate(meetings) for one in meeting.met}
    assert len(said) == 12
    for (here, there), one in said.items():
        back = said[there, here].measured
        assert one.measured, one.why
        assert back
        assert one.measured.sent_gbps == pytest.approx(back.received_gbps, rel=1e-4)
        assert one.measured.latency_us == pytest.approx(back.latency_us, rel=1e-2)
        assert min(one.measured) > 0
        assert one.gbps == min(int(here[1:]), int(there[1:])) + 1
    assert os.listdir(tmp_path / "peers") == []
    assert not [one.name for one in threading.enumerate() if one.name.startswith("preflight")]


def test_the_speed_is_in_gbit_per_second() -> None:
    """The partner sends eight megabytes in half a second and a bit."""
    chunk, count, pause_s = 128 * 1024, 64, 0.5
    with socket.create_server((HERE, 0)) as server, socket.socket() as link, ThreadPoolExecutor(1) as pool:
        for end in (server, link):  # small buffers: what was sent has arrived, but for little
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, chunk)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, chunk)
        link.connect(server.getsockname())
        accepted, _ = server.accept()
        with accepted:
            measured = pool.submit(follow, accepted, lambda: True)
            link.sendall(b"g")
            assert link.recv(1) == b"r"
            link.sendall(b"d")
            began = time.perf_counter()
            link.sendall(bytes(chunk * count))
            time.sleep(pause_s)
            link.sendall(b"\1" + bytes(chunk - 1))
            said = float(link.recv(16, socket.MSG_WAITALL))
            took_s = time.perf_counter() - began
            while link.recv(chunk, socket.MSG_WAITALL)[0] != 1:
                pass
            link.sendall(b"%15.6f\n%15.3f\n" % (2, 30))
            gbit = 8 * chunk * (count + 1) / 1e9
            assert gbit / took_s - 1e-6 <= said <= gbit / pause_s
            assert tuple(measured.result(60)) == pytest.approx((30, 2, said), abs=1e-6)


@pytest.mark.full
def test_a_node_that_is_not_there_costs_the_others_one_time_limit(tmp_path: Path) -> None:
    meetings = met(tmp_path, range(3), 4, wait_s=4)
    for meeting in meetings:
        assert {one.name: (one.came, bool(one.measured)) for one in meeting.met if not one.measured} == {
            "rank 3": (False, False)
        }
        assert len(meeting.met) == 3


def test_strangers_are_not_let_in_and_hold_nobody_up(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(meet, Card(0, "n0", HERE), Place(str(tmp_path), 0, 2, 60))
        card = published(tmp_path, 0)
        assert (tmp_path / "peers").stat().st_mode & 0o077 == 0
        right = {"token": card.token, "rank": 1, "why": "link"}
        for wrong in (right | {"token": "x" * 32}, right | {"token": 7}, right | {"rank": "many"}, {}, [1], None):
            assert call(card, json.dumps(wrong).encode() + b"\n") == b""
        assert call(card, b"GET / HTTP/1.1\r\n\r\n" + b"x" * 600) == b""
        assert call(card, b"[" * 511 + b"\n") == b""
        with socket.create_connection((card.address, card.port)):  # says nothing at all
            assert call(card, json.dumps(right | {"why": "ask"}).encode() + b"\n") == b"w"
            (second,) = met(tmp_path, range(1, 2), 2)
        assert all(one.measured for meeting in (first.result(60), second) for one in meeting.met)


def test_a_partner_that_goes_away_is_told_with_what_it_did(tmp_path: Path) -> None:
    """Rank 1 waits for its caller, which is let in, begins, and hangs up."""
    (tmp_path / "peers").mkdir()
    (tmp_path / "peers" / "0.json").write_text(json.dumps({"rank": 0, "host": "n0", "address": HERE, "port": 1}))
    with ThreadPoolExecutor(1) as pool:
        meeting = pool.submit(meet, Card(1, "n1", HERE), Place(str(tmp_path), 1, 2, 60))
        card = published(tmp_path, 1)
        with socket.create_connection((card.address, card.port), 20) as link:
            link.sendall(json.dumps({"token": card.token, "rank": 0, "why": "link"}).encode() + b"\n")
            assert link.recv(1) == b"w"
            link.sendall(b"g")
            assert link.recv(1) == b"r"
        (one,) = meeting.result(60).met
    assert (one.name, one.measured, one.came, one.why) == ("n0", None, True, "it closed the connection")


def test_without_an_address_nobody_is_met(tmp_path: Path) -> None:
    assert meet(Card(0, "n0", ""), Place(str(tmp_path), 0, 2, 60)).met == ()


@pytest.mark.full
def test_a_card_that_leads_nowhere_is_given_up_soon(tmp_path: Path) -> None:
    """As of a node that went down: `--wait` is for those that have not come yet."""
    with socket.socket() as unused:
        unused.bind((HERE, 0))
        (tmp_path / "peers").mkdir()
        dead = {"rank": 1, "host": "n1", "address": HERE, "port": unused.getsockname()[1]}
        (tmp_path / "peers" / "1.json").write_text(json.dumps(dead))
        (one,) = met(tmp_path, range(1), 2, wait_s=3600)[0].met  # waited for, it would be the end of the test
    assert (one.measured, one.came) == (None, True)
    assert "Connection refused" in one.why


@pytest.mark.full
def test_slow_callers_are_dropped_and_hold_nobody_up() -> None:
    """Hundreds of callers say their greeting byte by byte; a node that is expected gets in at once."""
    door = Door(Card(0, "n0", HERE))
    address = (HERE, door.card.port)
    slow = [socket.create_connection(address, 20) for _ in range(40)]
    silent = socket.create_connection(address, 20)
    try:
        over = threading.Event()

        def trickle() -> None:
            while not over.wait(0.1):
                for link in slow:
                    with suppress(OSError):
                        link.send(b"x")

        began = time.monotonic()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(trickle)
            try:
                ours = json.dumps({"token": door.card.token, "rank": 1, "why": ASK}).encode() + b"\n"
                assert call(door.card, ours) == WELCOME
                for link in (silent, *slow):
                    assert _is_closed(link)
            finally:
                over.set()
        assert time.monotonic() - began > 1.5, "they had their time"
    finally:
        for link in (silent, *slow):
            link.close()
        door.close()


def test_a_greeting_without_end_is_dropped_by_its_size() -> None:
    door = Door(Card(0, "n0", HERE))
    try:
        assert call(door.card, b"[" * 100_000) == b""
        assert call(door.card, b"[" * 400 + b"\n") == b""
    finally:
        door.close()


def _is_closed(link: socket.socket) -> bool:
    link.settimeout(20)
    try:
        return link.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("rank", ["1e999", "-1e999", "NaN", '"one"', "[]", "{}", "null"])
def test_a_greeting_that_makes_no_sense_closes_no_door(rank: str) -> None:
    door = Door(Card(0, "n0", HERE))
    try:
        for said, answer in ((rank, b""), ("1", WELCOME)):
            with socket.create_connection((HERE, door.card.port), 10) as link:
                link.sendall(f'{{"token": "{door.card.token}", "rank": {said}, "why": "{ASK}"}}\n'.encode())
                assert link.recv(1) == answer
    finally:
        door.close()
