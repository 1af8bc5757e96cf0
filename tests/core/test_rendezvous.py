"""Nodes that wait for each other: who is missing is said within 15 s, and the wait has an end with that reason."""

from __future__ import annotations

import json
import os
import re
import socket
import socketserver
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread

import pytest
from tests import rank_report
from tests.conftest import Run, free_port, wait_until
from tests.lab import hosts, slurm

from primus_core.request.arguments import duration
from primus_machine.rendezvous.client import messages
from primus_machine.rendezvous.rank_sockets import RankSockets, Target, call_all

LINE = re.compile(r"^primus: rendezvous: (.*); waiting for (\d+) s, gives up after .*", re.M)


@pytest.fixture
def site(tmp_path: Path) -> dict[str, str]:
    """A task with one process on each node; the variables of its package."""
    rank_report.write(tmp_path / "packages")
    return {"PYTHONPATH": str(tmp_path / "packages"), "MASTER_PORT": str(free_port())}


class Node:
    """`primus direct` as a person starts it on one machine."""

    def __init__(self, folder: Path, environ: dict[str, str], *options: str, inside: Sequence[str] = ()) -> None:
        folder.mkdir()
        command = [*inside, str(Path(sys.executable).with_name("primus")), "direct", *options, "--", "rank_report"]
        self.log = folder / "console"
        with self.log.open("wb") as console:
            self.process = subprocess.Popen(
                command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=console, stderr=console
            )

    @property
    def text(self) -> str:
        return self.log.read_text()

    def said(self, what: str) -> bool:
        """Whether it has said this meanwhile."""
        return what in self.text

    def end(self) -> int:
        return self.process.wait(120)


@pytest.fixture
def machines() -> Iterator[Sequence[str]]:
    """Two hosts that share no address and no name."""
    if why := slurm.missing():
        pytest.skip(why)
    with hosts.hosts() as names:
        yield names


def environ_of(clean: dict[str, str], site: dict[str, str], rank: int, **more: str) -> dict[str, str]:
    return {**clean, **site, "NNODES": "2", "NODE_RANK": str(rank), "MASTER_ADDR": hosts.ADDRESSES[0], **more}


@pytest.mark.full
@pytest.mark.slurm
def test_two_hosts_say_who_is_missing_and_start_together_once_both_are_there(
    machines: Sequence[str], tmp_path: Path, site: dict[str, str], clean_environ: dict[str, str]
) -> None:
    inside = [("ip", "netns", "exec", name) for name in machines]
    where = f"{hosts.ADDRESSES[0]}:{site['MASTER_PORT']}"
    first = Node(tmp_path / "0", environ_of(clean_environ, site, 0), inside=inside[0])
    wait_until(lambda: first.said("missing"), 60)
    [(said, after)] = LINE.findall(first.text)
    assert said == f"1 of 2 nodes have arrived at {where}; missing: node rank 1"
    assert int(after) >= 15
    assert '"RANK"' not in first.text
    second = Node(tmp_path / "1", environ_of(clean_environ, site, 1), inside=inside[1])
    assert (first.end(), second.end()) == (0, 0), first.text + second.text
    assert '"RANK": "0"' in first.text
    assert "missing" not in second.text


@pytest.mark.full
@pytest.mark.slurm
def test_nodes_whose_own_names_lead_to_loopback_use_the_interface_by_which_they_met(
    machines: Sequence[str], tmp_path: Path, site: dict[str, str], clean_environ: dict[str, str]
) -> None:
    """As Debian writes /etc/hosts: Gloo would listen at 127.0.1.1, where no other node reaches it."""
    nodes = []
    for rank, name in enumerate(machines):
        known = tmp_path / f"hosts{rank}"
        known.write_text(f"127.0.0.1 localhost\n127.0.1.1 n{rank}\n{hosts.ADDRESSES[1 - rank]} n{1 - rank}\n")
        change = f'hostname n{rank}; mount --bind {known} /etc/hosts; exec "$0" "$@"'
        inside = ("ip", "netns", "exec", name, "unshare", "--uts", "--mount", "sh", "-c", change)
        environ = {**environ_of(clean_environ, site, rank), "MASTER_ADDR": "n0"}
        nodes.append(Node(tmp_path / str(rank), environ, inside=inside))
    assert [node.end() for node in nodes] == [0, 0], nodes[0].text + nodes[1].text
    assert "env.GLOO_SOCKET_IFNAME=eth0" in nodes[0].text, "its own name says nothing of the way to others"
    assert "env.GLOO_SOCKET_IFNAME" not in nodes[1].text, "it was planned from the route to node 0"


@pytest.mark.full
@pytest.mark.slurm
def test_nodes_whose_ranks_could_not_reach_each_other_end_with_the_cause_on_both(
    machines: Sequence[str], tmp_path: Path, site: dict[str, str], clean_environ: dict[str, str]
) -> None:
    """They meet, but ranks of one would listen at its loopback: Gloo would let the other wait for half an hour."""
    nodes = []
    for rank, name in enumerate(machines):
        environ = environ_of(clean_environ, site, rank, **({"GLOO_SOCKET_IFNAME": "lo"} if rank else {}))
        nodes.append(Node(tmp_path / str(rank), environ, inside=("ip", "netns", "exec", name)))
    assert [node.end() for node in nodes] == [1, 1], nodes[0].text + nodes[1].text
    what = r"rendezvous: node rank 0 \(\S+\) cannot reach node rank 1 \(\S+\) at 127.0.0.1 \(lo\): Connection refused"
    for node in nodes:
        assert re.search(what, node.text), node.text
        assert "set GLOO_SOCKET_IFNAME" in node.text


def test_a_node_listens_as_its_ranks_will_and_who_cannot_reach_it_is_told_why() -> None:
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    sockets = RankSockets({"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "^lo"}, "no-such", names, "")
    [(interface, address, port)] = sockets.listening
    assert (interface, address) == ("lo", "127.0.0.1")
    there = Target("node rank 1 (n1)", interface, address, port)
    assert call_all([there], patience_s=0.0) == ""
    sockets.close()
    assert call_all([there], patience_s=0.0) == "node rank 1 (n1) at 127.0.0.1 (lo): Connection refused"


def test_an_interface_with_ipv6_alone_has_that_address() -> None:
    text = f"{'0' * 31}1 01 80 10 80 alone\nfe80000000000000000000000000{'0' * 3}2 02 40 20 80 alone\n"
    sockets = RankSockets({}, "alone", ("GLOO_SOCKET_IFNAME",), text)
    assert [place[:2] for place in sockets.listening] == [("alone", "::1")]
    sockets.close()


@pytest.mark.full
@pytest.mark.slurm
def test_a_wrong_address_a_missing_node_and_a_second_one_of_that_rank_end_with_their_reasons(
    machines: Sequence[str], tmp_path: Path, site: dict[str, str], clean_environ: dict[str, str]
) -> None:
    """Side by side, for they wait: on host 0 node 0 of three; on host 1 its node 1, twice, and one that is lost."""
    three = {"NNODES": "3"}
    limit = ("--rendezvous-timeout", "20s")
    inside = [("ip", "netns", "exec", name) for name in machines]
    lost = Node(
        tmp_path / "lost", environ_of(clean_environ, site, 1, MASTER_ADDR="10.83.0.77"), *limit, inside=inside[1]
    )
    first = Node(tmp_path / "0", environ_of(clean_environ, site, 0, **three), *limit, inside=inside[0])
    one = Node(
        tmp_path / "1", environ_of(clean_environ, site, 1, **three), "--rendezvous-timeout", "5m", inside=inside[1]
    )
    wait_until(lambda: one.said("waiting for other nodes: 2 of 3 have arrived; missing: 2"), 60)
    again = Node(tmp_path / "again", environ_of(clean_environ, site, 1, **three), inside=inside[1])
    assert again.end() == 1
    assert re.search(r"NODE_RANK is 1 on \S+, and on \S+, too", again.text), again.text
    alien = Node(tmp_path / "alien", environ_of(clean_environ, site, 1), inside=inside[1])
    assert alien.end() == 1
    assert re.search(r"NNODES is 2 on \S+, and 3 on node 0", alien.text), alien.text
    assert (first.end(), one.end(), lost.end()) == (1, 1, 1)
    where = f"{hosts.ADDRESSES[0]}:{site['MASTER_PORT']}"
    what = f"rendezvous: 2 of 3 nodes have arrived at {where}; missing: node rank 2"
    for node in (first, one):
        assert f"  what          {what}" in node.text, node.text
    unheard = f"rendezvous: node rank 1: no answer from 10.83.0.77:{site['MASTER_PORT']} ("
    assert f"  what          {unheard}" in lost.text
    assert LINE.search(lost.text), "it said so before, too"
    assert "waited for 20 s (--rendezvous-timeout)" in lost.text
    record = json.loads(next((tmp_path / "0/output").glob("rank_report_*/metadata.json")).read_text())
    assert (record["status"], record["exit_code"]) == ("failed", 1)
    assert record["first_failure"]["what"] == what
    events = next((tmp_path / "0/output").glob("rank_report_*/logs/events.jsonl")).read_text()
    assert '"name": "worker"' not in events, "no rank has started"


@pytest.mark.slurm
def test_an_address_that_is_none_of_node_0s_is_refused_with_both_named(
    machines: Sequence[str], tmp_path: Path, site: dict[str, str], clean_environ: dict[str, str]
) -> None:
    inside = ("ip", "netns", "exec", machines[0])
    wrong = environ_of(clean_environ, site, 0, MASTER_ADDR=hosts.ADDRESSES[1])
    node = Node(tmp_path / "0", wrong, inside=inside)
    assert node.end() == 2
    assert f"MASTER_ADDR is '{hosts.ADDRESSES[1]}', but node rank 0 is {os.uname().nodename}" in node.text
    assert f"fix: set MASTER_ADDR={os.uname().nodename}" in node.text
    assert not (tmp_path / "0/output").exists()
    forwarded = Node(
        tmp_path / "forwarded", {**wrong, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "--dry-run", inside=inside
    )
    assert forwarded.end() == 0, forwarded.text


@pytest.mark.full
def test_a_port_that_another_program_holds_is_named_on_both_sides(
    primus: Run, tmp_path: Path, site: dict[str, str]
) -> None:
    env = {**site, "NNODES": "2", "MASTER_ADDR": "127.0.0.1"}
    with socket.create_server(("127.0.0.1", int(site["MASTER_PORT"]))), ThreadPoolExecutor(2) as pool:
        first, second = pool.map(
            lambda rank: primus(
                "direct", "--rendezvous-timeout", "3s", "--", "rank_report", env={**env, "NODE_RANK": rank}
            ),
            "01",
        )
    assert (first.returncode, second.returncode) == (3, 1)
    assert f"node 0 cannot listen on port {site['MASTER_PORT']}: Address already in use" in first.stderr
    assert "is it another program's port?" in second.stderr
    assert "fix: set MASTER_PORT to a free port, the same on all nodes" in second.stderr


@pytest.mark.full
def test_another_program_that_answers_is_named_and_another_port_is_the_way_out(
    primus: Run, site: dict[str, str]
) -> None:
    class Banner(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")

    class Server(socketserver.TCPServer):
        allow_reuse_address = True

    where = ("127.0.0.1", int(site["MASTER_PORT"]))
    env = {**site, "NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": where[0]}
    with Server(where, Banner) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        done = primus("direct", "--rendezvous-timeout", "2s", "--", "rank_report", env=env)
        server.shutdown()
    assert done.returncode == 1
    assert f"rendezvous: node rank 1: another program answers at {where[0]}:{where[1]}, not Primus" in done.stderr
    assert "no answer" not in done.stderr
    assert "fix: set MASTER_PORT to a free port, the same on all nodes" in done.stderr


@pytest.mark.full
def test_an_address_that_no_node_can_resolve_is_named_as_the_cause(primus: Run, site: dict[str, str]) -> None:
    env = {**site, "NNODES": "2", "MASTER_ADDR": "nowhere.invalid"}
    options = ("direct", "--rendezvous-timeout", "30s", "--", "rank_report")
    with ThreadPoolExecutor(2) as pool:
        both = pool.map(lambda rank: primus(*options, env={**env, "NODE_RANK": rank}), "01")
    for done in both:
        assert done.returncode == 1
        cause = "MASTER_ADDR is 'nowhere.invalid', which this node cannot resolve"
        (line,) = re.findall(r"^primus: rendezvous: .*; waiting for .*", done.stderr, re.M)
        assert cause in line
        assert cause in done.stderr.partition("primus: error: ")[2]
        assert "fix: set MASTER_ADDR to a name that each node knows" in done.stderr


@pytest.mark.full
def test_nodes_that_shall_not_meet_start_at_once_and_one_node_meets_nobody(primus: Run, site: dict[str, str]) -> None:
    def steps(*options: str, **environ: str) -> list[str]:
        shown = primus("direct", "--dry-run", "--json", *options, "--", "rank_report", env={**site, **environ})
        return [step["name"] for step in json.loads(shown.stdout)["steps"]]

    two = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "node1"}
    assert steps(**two) == ["rendezvous", "worker"]
    assert steps("--rendezvous-timeout", "0", **two) == steps("--single", **two) == steps() == ["worker"]


def test_the_limit_may_stand_in_a_file(primus: Run, tmp_path: Path, site: dict[str, str]) -> None:
    (tmp_path / "primus.yaml").write_text("direct: {rendezvous_timeout: 90s}\n")
    two = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "node1"}
    assert "--timeout 90\n" in primus("direct", "--dry-run", "--", "rank_report", env={**site, **two}).stdout
    wrong = primus("direct", "--rendezvous-timeout", "soon", "--", "rank_report", env=site)
    assert wrong.returncode == 2
    assert "'soon' is not a duration such as 30s, 10m or 1h30m" in wrong.stderr


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("10m", 600), ("1h30m", 5400), ("45", 45), ("0", 0), ("1.5", 1.5)]
)
def test_a_duration_is_read_as_people_write_it(text: str, seconds: float) -> None:
    assert duration(text) == seconds


def test_what_is_no_line_of_a_node_is_refused() -> None:
    assert messages(buffer := bytearray(b'{"rank": 1}\n{"ra')) == [{"rank": 1}]
    assert buffer == b'{"ra'
    for alien in (b"GET / HTTP/1.1\r\n\r\n", b"[1]\n", b"x" * 100_000):
        with pytest.raises((ValueError, TypeError)):
            messages(bytearray(alien))
