"""Which adapters and interfaces the collectives take, on machines with the ports and routes of real ones."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.machine import machines
from tests.machine.machines import ZERO, local, mapped, port, roce_gids, routes

from primus_machine import collectives as network
from primus_machine import facts
from primus_machine.collectives import Choice
from primus_machine.facts import Facts, Port, Route
from primus_machine.host import HostRoot, numbered

ROUTES = routes(("0.0.0.0/0", "eno1", 100), ("10.1.0.0/16", "eno1", 100), ("172.17.0.0/16", "docker0", 0))
HOSTS = {"etc/hosts": "127.0.0.1 localhost\n10.1.2.3 node-a.cluster node-a  # the first\n127.0.1.1 me\nbad node-bad\n"}


def read(root: Path, *trees: Mapping[str, str]) -> Facts:
    return facts.read(machines.write(root, *trees))


def choose(found: Facts, *, has_gpus: bool = True, nnodes: int = 2, master: str = "10.1.2.3", **environ: str) -> Choice:
    return network.choose(found, has_gpus=has_gpus, nnodes=nnodes, master_address=master, user_environ=environ)


def values(choice: Choice) -> dict[str, str]:
    assert all(variable.why and variable.source.startswith("https://") for variable in choice.variables)
    return {variable.name: variable.value for variable in choice.variables}


def roce(device: str, index: int, **more: object) -> dict[str, str]:
    gids = more.pop("gids", roce_gids(index))
    return port(device, layer="Ethernet", rate="400 Gb/sec (4X NDR)", gids=gids, **more)  # type: ignore[arg-type]


def with_ports(*ports: Port) -> Facts:
    return Facts({}, "", "", 0.0, "", 1, (), {}, HostRoot("/nowhere", {}), network=facts.Network(ports))


def test_ports_are_read_with_what_they_are(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        port("mlx5_10", numa=1),
        port("mlx5_2", rate="200 Gb/sec (4X HDR)"),
        port("mlx5_2", number=2, state="1: DOWN", physical="3: Disabled"),
        roce("bnxt_re0", 1, driver="bnxt_en"),
    )
    assert found.network.ports == (
        Port("bnxt_re0", 1, True, "Ethernet", 400.0, 3, "bnxt_en", 0),
        Port("mlx5_2", 1, True, "InfiniBand", 200.0, -1, "mlx5_core", 0),
        Port("mlx5_2", 2, False, "InfiniBand", 400.0, -1, "mlx5_core", 0),
        Port("mlx5_10", 1, True, "InfiniBand", 400.0, -1, "mlx5_core", 1),
    )


@pytest.mark.parametrize(
    ("state", "physical", "active"),
    [
        ("4: ACTIVE", "5: LinkUp", True),
        ("4: ACTIVE", None, True),
        ("4: ACTIVE", "3: Disabled", False),
        ("4: ACTIVE", "1: Sleep", False),
        ("2: INIT", "5: LinkUp", False),
        ("5: ACTIVE_DEFER", "5: LinkUp", False),
        ("1: DOWN", "2: Polling", False),
        ("", "", False),
    ],
)
def test_a_port_is_active_when_state_and_link_say_so(
    tmp_path: Path, state: str, physical: str | None, active: bool
) -> None:
    assert read(tmp_path, port("mlx5_0", state=state, physical=physical)).network.ports[0].active is active


@pytest.mark.parametrize(
    ("gids", "index"),
    [
        (roce_gids(1), 3),
        ([(local(1), "IB/RoCE v1"), (local(1), "RoCE v2")], 1),
        ([(local(1), "RoCE v2"), ("fd00:0000:0000:0000:0000:0000:0000:0001", "RoCE v2")], 1),
        ([(local(1), "RoCE v2"), (ZERO, ""), (ZERO, ""), (mapped("10.0.0.1"), "RoCE v2")], 3),
        ([(mapped("10.0.0.1"), "RoCE v2"), (mapped("10.0.0.2"), "RoCE v2")], 0),
        ([(local(1), "IB/RoCE v1"), (mapped("10.0.0.1"), "IB/RoCE v1")], -1),
        ([(ZERO, "RoCE v2")], -1),
        ([("no gid", "RoCE v2")], -1),
        ([], -1),
    ],
)
def test_the_gid_of_roce_v2_is_found_in_the_ports_own_table(
    tmp_path: Path, gids: list[tuple[str, str]], index: int
) -> None:
    assert read(tmp_path, roce("mlx5_0", 0, gids=gids)).network.ports[0].gid_index == index


@pytest.mark.full
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([ZERO, local(1), mapped("10.0.0.1"), "x"]), st.sampled_from(["RoCE v2", "IB/RoCE v1"])
        ),
        max_size=12,
    )
)
def test_the_gid_is_the_lowest_of_the_best_kind(tmp_path: Path, gids: list[tuple[str, str]]) -> None:
    padded = gids + [(ZERO, "RoCE v2")] * (12 - len(gids))  # the same files in each example
    v2 = [gid if kind == "RoCE v2" else "" for gid, kind in padded]
    best = next((v2.index(kind) for kind in (mapped("10.0.0.1"), local(1)) if kind in v2), -1)
    assert read(tmp_path, roce("mlx5_0", 0, gids=padded)).network.ports[0].gid_index == best


def test_routes_are_read_from_both_tables(tmp_path: Path) -> None:
    ipv6 = (
        "fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 "
        "00000100 00000001 00000000 00000001     eth0\n"
        "00000000000000000000000000000001 80 00000000000000000000000000000000 00 00000000000000000000000000000000 "
        "00000000 00000002 00000000 80200001       lo\n"
        "ff000000000000000000000000000000 08 00000000000000000000000000000000 00 00000000000000000000000000000000 "
        "00000100 00000004 00000000 00000001     eth0\n"
        "00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 "
        "ffffffff 00000001 00000000 00200200     eth0\n"
    )
    down = "eth9\t0000000A\t00000000\t0000\t0\t0\t0\t000000FF\t0\t0\t0\nshort line\n"
    tree = {**ROUTES, "proc/net/ipv6_route": ipv6}
    tree["proc/net/route"] += down
    assert read(tmp_path, tree).network.routes == (
        Route("0.0.0.0/0", "eno1", 100),
        Route("10.1.0.0/16", "eno1", 100),
        Route("172.17.0.0/16", "docker0", 0),
        Route("fd00::/64", "eth0", 256),
    )


@pytest.mark.parametrize(
    "line",
    [
        "ens1 GG HH 0001 0 0 x yy 0 0 0",
        "ens1 00000000 00000000 0001 0 0 100 0000000000 0 0 0",
        "ens1 00000000 00000000 0001 0 0 soon 00000000 0 0 0",
        "ens1 0000000A 00000000 0001 0 0 100 FF00FF00 0 0 0",
        "ens1 00000000 00000000 0001",
    ],
)
def test_a_line_that_is_no_route_makes_none(tmp_path: Path, line: str) -> None:
    tree = {"proc/net/route": f"Iface Destination\n{line}\n"}
    assert read(tmp_path, tree).network == facts.Network()


@pytest.mark.parametrize("prefix", ["GG", "ff", "0"])
def test_a_line_that_is_no_route_of_ipv6_makes_none(tmp_path: Path, prefix: str) -> None:
    zero = "0" * 32
    line = f"{zero} {prefix} {zero} 00 {zero} 00000100 00000001 00000000 00000001 eth0"
    assert read(tmp_path, {"proc/net/ipv6_route": line}).network == facts.Network()


def test_a_metric_that_the_kernel_writes_signed_is_a_high_one(tmp_path: Path) -> None:
    found = read(tmp_path, routes(("10.1.0.0/16", "eth0", -1), ("10.1.0.0/16", "eth1", 100)))
    assert values(choose(found))["GLOO_SOCKET_IFNAME"] == "eth1"


@pytest.mark.parametrize("name", ["9" * 200, "007", "٣", "1x"])
def test_a_port_or_gid_that_has_no_number_is_passed_over(tmp_path: Path, name: str) -> None:
    device = roce("mlx5_0", 0)
    odd = {f"{machines.IB}/mlx5_0/ports/{name}/state": "4: ACTIVE", f"{machines.IB}/mlx5_0/ports/1/gids/{name}": ZERO}
    assert read(tmp_path / "a", device, odd).network == read(tmp_path / "b", device).network


def test_a_number_of_five_thousand_digits_stops_nothing() -> None:
    huge = "9" * 5000  # in a capture: no file can be called so
    assert list(numbered((huge, "2", "10", "1", "03"))) == [1, 2, 10]


@pytest.mark.parametrize(
    "name", ["ev\x1b[31mil;rm -rf ~,x", "ev\nil", "mlx5_0,mlx5_1", "$(id)", "a" * 65, "mlx5 0", "mlx5_é"]
)
def test_a_device_whose_name_no_kernel_gives_is_noted_and_not_taken(tmp_path: Path, name: str) -> None:
    chosen = choose(read(tmp_path, port(name), port("mlx5_0")), nnodes=1)
    assert values(chosen) == {"NCCL_IB_HCA": "=mlx5_0:1"}
    shown = ascii(name[:64])
    assert chosen.notes == (f"ignored as network devices because of their names: {shown}",)
    assert chosen.notes[0].isprintable()


def test_an_interface_whose_name_no_kernel_gives_is_noted_and_not_taken(tmp_path: Path) -> None:
    odd = [(f"1{n}.0.0.0/8", f"e;{n}", 0) for n in range(5)]
    hosts = {"etc/hosts": "fe80::1%$(id) zoned\nfe80::1% bare\n"}
    found = read(tmp_path, routes(*odd), hosts)
    chosen = choose(found)
    assert chosen.variables == ()
    assert chosen.notes[0].endswith("'e;0', 'e;1', 'e;2' and 2 more")
    assert "'fe80::1%$(id)' names no interface" in choose(found, master="zoned").notes[1]
    assert "no route to fe80::1;" in choose(found, master="bare").notes[1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(st.text(), st.text())
@pytest.mark.full
def test_no_routing_table_stops_the_detection(tmp_path: Path, ipv4: str, ipv6: str) -> None:
    read(tmp_path, {})
    for name, text in (("route", ipv4), ("ipv6_route", ipv6)):
        (tmp_path / "proc" / "net").mkdir(parents=True, exist_ok=True)
        (tmp_path / "proc" / "net" / name).write_bytes(text.encode("utf-8", "replace"))
    facts.read(HostRoot(str(tmp_path), {}))


NETWORKS = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).flatmap(
    lambda address: st.integers(0, address.max_prefixlen).map(
        lambda length: ipaddress.ip_network((address, length), strict=False)
    )
)


@pytest.mark.full
@given(st.lists(st.tuples(NETWORKS, st.integers(0, 3)), max_size=12), st.data())
def test_the_longest_prefix_wins_and_then_the_lowest_metric(
    table: list[tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, int]], data: st.DataObject
) -> None:
    inside = [st.integers(0, min(net.num_addresses, 2**64) - 1).map(lambda n, net=net: net[n]) for net, _ in table]  # type: ignore[misc]
    address = data.draw(st.one_of(*inside, st.ip_addresses()))
    lines = [Route(str(net), f"eth{index}", metric) for index, (net, metric) in enumerate(table)]
    fits = [
        (-net.prefixlen, metric, index)
        for index, (net, metric) in enumerate(table)
        if net.version == address.version and address in net
    ]
    expected = f"eth{min(fits)[2]}" if fits else ""
    assert network.interface_to(lines, str(address)) == expected


def test_active_infiniband_ports_are_named_exactly_and_need_no_gid(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        *(port(f"mlx5_{index}") for index in (0, 1, 2, 10)),
        port("mlx5_3", state="1: DOWN", physical="2: Polling"),
    )
    chosen = choose(found, nnodes=1)
    assert values(chosen) == {"NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_10:1"}
    assert chosen.variables[0].why == "active InfiniBand ports, by exact name"
    assert chosen.variables == network.variables(found, has_gpus=True, nnodes=1, master_address="", user_environ={})


def test_infiniband_is_preferred_to_the_ethernet_beside_it(tmp_path: Path) -> None:
    found = read(tmp_path, port("mlx5_0"), roce("mlx5_1", 1))
    chosen = choose(found, nnodes=1)
    assert values(chosen) == {"NCCL_IB_HCA": "=mlx5_0:1"}
    assert chosen.variables[0].why.endswith("; without mlx5_1:1 (not InfiniBand)")
    left = "NCCL uses the InfiniBand ports, not those of another kind: mlx5_1:1; set NCCL_IB_HCA to choose others"
    assert chosen.notes == (left,)
    assert choose(found, nnodes=1, NCCL_IB_HCA="mlx5_1").notes == (), "the person has chosen"


IB, ROCE = "InfiniBand", "Ethernet"


@pytest.mark.parametrize(
    ("ports", "kind"),
    [
        ({ROCE: (400, 8), IB: (40, 1)}, ROCE),
        ({ROCE: (400, 8), IB: (200, 1)}, ROCE),
        ({ROCE: (400, 8), IB: (400, 1)}, ROCE),
        ({ROCE: (25, 1), IB: (400, 8)}, IB),
        ({ROCE: (200, 2), IB: (200, 8)}, IB),
        ({ROCE: (400, 1), IB: (200, 8)}, IB),
        ({ROCE: (400, 1), IB: (100, 8)}, IB),
        ({ROCE: (100, 8), IB: (200, 2)}, IB),
        ({ROCE: (400, 8), IB: (400, 8)}, IB),
        ({ROCE: (0, 2), IB: (0, 1)}, IB),
    ],
)
def test_of_two_fabrics_the_faster_is_taken_and_the_other_is_noted(
    ports: Mapping[str, tuple[int, int]], kind: str
) -> None:
    everything = tuple(
        Port(f"{layer[:3].lower()}_{number}", 1, True, layer, float(rate), 3 if layer == ROCE else -1)
        for layer, (rate, count) in ports.items()
        for number in range(count)
    )
    chosen = choose(with_ports(*everything), nnodes=1)
    taken = [port for port in everything if port.link_layer == kind]
    assert values(chosen)["NCCL_IB_HCA"] == "=" + ",".join(f"{port.device}:1" for port in taken)
    others = ", ".join(f"{port.device}:1" for port in everything if port.link_layer != kind)
    assert len(chosen.notes) == 1
    assert f"of another kind: {others};" in chosen.notes[0]


def test_slow_ports_for_management_are_left_out_with_a_reason(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        roce("rdma0", 0),
        roce("rdma1", 1),
        port("mgmt", layer="Ethernet", rate="25 Gb/sec (1X EDR)", gids=roce_gids(2)),
        port("storage", layer="Ethernet", rate="100 Gb/sec (4X EDR)", gids=roce_gids(3)),
    )
    chosen = choose(found, nnodes=1)
    assert values(chosen) == {"NCCL_IB_HCA": "=rdma0:1,rdma1:1", "NCCL_IB_GID_INDEX": "3"}
    assert (
        chosen.variables[0].why
        == "active RoCE ports, by exact name; without mgmt:1, storage:1 (100/25 beside 400 Gb/s)"
    )


def test_roce_ports_that_disagree_on_the_gid_get_no_index(tmp_path: Path) -> None:
    other = [(local(2), "IB/RoCE v1"), (local(2), "RoCE v2")]
    chosen = choose(read(tmp_path, roce("rdma0", 0), roce("rdma1", 1, gids=other)), nnodes=1)
    assert values(chosen) == {"NCCL_IB_HCA": "=rdma0:1,rdma1:1"}
    assert chosen.variables[0].why.endswith(
        "no NCCL_IB_GID_INDEX: the ports have their RoCE v2 GIDs at different places (1, 3)"
    )


def test_ethernet_ports_without_a_gid_are_left_out(tmp_path: Path) -> None:
    iwarp = port("irdma0", layer="Ethernet", rate="400 Gb/sec")
    chosen = choose(read(tmp_path, roce("rdma0", 0), iwarp), nnodes=1)
    assert values(chosen) == {"NCCL_IB_HCA": "=rdma0:1", "NCCL_IB_GID_INDEX": "3"}
    alone = choose(read(tmp_path / "alone", iwarp), nnodes=1)
    assert alone == Choice(notes=("no adapter is chosen for NCCL: without irdma0:1 (no RoCE v2 GID)",))


def test_ports_that_are_all_down_give_nothing_but_a_note(tmp_path: Path) -> None:
    found = read(tmp_path, *(port(f"mlx5_{n}", state="1: DOWN", physical="3: Disabled") for n in (0, 1)))
    note = "all InfiniBand and RoCE ports are DOWN (mlx5_0:1, mlx5_1:1): NCCL uses TCP between nodes"
    assert choose(found, nnodes=1) == Choice(notes=(note,))
    assert choose(found, nnodes=1, has_gpus=False) == Choice()


def test_a_rail_that_is_missing_among_its_like_is_named(tmp_path: Path) -> None:
    down = {"state": "1: DOWN", "physical": "2: Polling"}
    found = read(
        tmp_path,
        *(port(f"mlx5_{number}") for number in (0, 1)),
        port("mlx5_2", rate="10 Gb/sec (4X SDR)", **down),  # type: ignore[arg-type]  # so slow until there is a link
        port("mlx5_0", number=2, **down),  # type: ignore[arg-type]  # second ports are often unused
        port("bnxt_re0", layer="Ethernet", driver="bnxt_en", **down),  # type: ignore[arg-type]
    )
    note = "DOWN: mlx5_2:1; ports left for NCCL: 2; check the cables"
    assert choose(found, nnodes=1).notes == (note,)
    assert choose(found, nnodes=1, NCCL_IB_HCA="=mlx5_0:1,mlx5_1:1").notes == (), "the person does without"
    assert choose(found, nnodes=1, NCCL_IB_HCA="bnxt").notes == (
        "DOWN: bnxt_re0:1; ports left for NCCL: 0; check the cables",
    )


def test_the_gid_is_that_of_the_ports_which_the_person_chose(tmp_path: Path) -> None:
    other = [(local(2), "IB/RoCE v1"), (local(2), "RoCE v2")]
    found = read(tmp_path, roce("rdma0", 0), roce("rdma1", 1, gids=other))
    assert values(choose(found, nnodes=1, NCCL_IB_HCA="rdma1"))["NCCL_IB_GID_INDEX"] == "1"
    assert values(choose(found, nnodes=1, NCCL_IB_HCA="^rdma1"))["NCCL_IB_GID_INDEX"] == "3"


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        ("mlx5", ["mlx5_1:1", "mlx5_1:2", "mlx5_10:1"]),
        ("mlx5_1", ["mlx5_1:1", "mlx5_1:2", "mlx5_10:1"]),
        ("=mlx5_1", ["mlx5_1:1", "mlx5_1:2"]),
        ("=mlx5_1:2,bnxt_re0:1", ["mlx5_1:2", "bnxt_re0:1"]),
        ("mlx5_1:1", ["mlx5_1:1", "mlx5_10:1"]),
        ("^mlx5_1", ["bnxt_re0:1"]),
        ("^=mlx5_1:1", ["mlx5_1:2", "mlx5_10:1", "bnxt_re0:1"]),
        ("", ["mlx5_1:1", "mlx5_1:2", "mlx5_10:1", "bnxt_re0:1"]),
    ],
)
def test_a_persons_adapters_are_understood_as_nccl_does(said: str, taken: Sequence[str]) -> None:
    ports = [
        Port(name, n, True, "Ethernet") for name, n in (("mlx5_1", 1), ("mlx5_1", 2), ("mlx5_10", 1), ("bnxt_re0", 1))
    ]
    assert [f"{p.device}:{p.port}" for p in ports if network.selects(said, p)] == taken


@pytest.mark.full
@given(
    st.lists(
        st.tuples(st.from_regex(r"[a-z]{1,4}[0-9_]{0,3}", fullmatch=True), st.integers(1, 4)), min_size=1, unique=True
    ),
    st.data(),
)
def test_the_adapters_that_are_named_are_those_that_nccl_takes(
    ports: list[tuple[str, int]], data: st.DataObject
) -> None:
    everything = [Port(name, number, True, "InfiniBand", 400.0) for name, number in ports]
    active = data.draw(st.sets(st.sampled_from(everything), min_size=1))
    here = with_ports(*(port._replace(active=port in active) for port in everything))
    said = values(choose(here, nnodes=1))["NCCL_IB_HCA"]
    assert {port for port in everything if network.selects(said, port)} == active


@pytest.mark.parametrize("master", ["10.1.2.3", "node-a", "NODE-A.cluster"])
def test_sockets_take_the_interface_whose_route_leads_to_the_master(tmp_path: Path, master: str) -> None:
    chosen = choose(read(tmp_path, ROUTES, HOSTS), master=master)
    assert values(chosen) == {"NCCL_SOCKET_IFNAME": "=eno1", "GLOO_SOCKET_IFNAME": "eno1"}
    assert chosen.notes == ()


def test_one_node_needs_no_sockets_and_a_run_without_gpus_no_nccl(tmp_path: Path) -> None:
    found = read(tmp_path, ROUTES, port("mlx5_0"))
    assert values(choose(found, nnodes=1)) == {"NCCL_IB_HCA": "=mlx5_0:1"}
    assert values(choose(found, has_gpus=False)) == {"GLOO_SOCKET_IFNAME": "eno1"}
    assert choose(found, has_gpus=False, nnodes=1) == Choice()


def test_an_address_with_a_zone_names_its_interface(tmp_path: Path) -> None:
    assert values(choose(read(tmp_path, ROUTES), master="fe80::1%ib0"))["GLOO_SOCKET_IFNAME"] == "ib0"


@pytest.mark.parametrize(
    ("master", "why"),
    [
        ("node-z", "its address cannot be resolved"),
        ("node-bad", "its address cannot be resolved"),
        ("me", "127.0.1.1 is this machine itself (see /etc/hosts)"),
        ("172.17.0.2", "the route to 172.17.0.2 leads through docker0, which reaches no other node"),
        ("fd00::1", "no route to fd00::1"),
    ],
)
def test_where_no_interface_is_found_none_is_set_and_a_note_says_why(tmp_path: Path, master: str, why: str) -> None:
    chosen = choose(read(tmp_path, ROUTES, HOSTS), master=master)
    assert chosen.variables == ()
    advice = "set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME if the ranks cannot connect"
    assert chosen.notes == (f"no interface to MASTER_ADDR {master}: {why}; {advice}",)


CONTAINERS = (
    "docker0",
    "docker_gwbridge",
    "br-1a2b3c4d5e6f",
    "veth12ab",
    "virbr0",
    "podman1",
    "lxcbr0",
    "vnet3",
    "lxc12ab",
)
PODS = (
    "cni0",
    "cni-podman0",
    "flannel.1",
    "cali12",
    "cilium_host",
    "cilium_vxlan",
    "vxlan.calico",
    "tunl0",
    "kube-bridge",
)


@pytest.mark.parametrize("name", ["lo", *CONTAINERS, *PODS])
def test_no_interface_of_containers_is_taken(tmp_path: Path, name: str) -> None:
    assert choose(read(tmp_path, routes(("10.1.0.0/16", name, 0)))).variables == ()


@pytest.mark.parametrize(
    "name",
    [
        "br0",
        "br-ex",
        "br-bond0",
        "br-1a2b3c",
        "vmbr0",
        "bond0",
        "bond0.100",
        "enp1s0f0np0",
        "ib0",
        "locale0",
        "tun0",
        "tap0",
    ],
)
def test_every_other_interface_is(tmp_path: Path, name: str) -> None:
    assert values(choose(read(tmp_path, routes(("10.1.0.0/16", name, 0)))))["GLOO_SOCKET_IFNAME"] == name


def test_a_person_who_set_both_interfaces_hears_no_note(tmp_path: Path) -> None:
    found = read(tmp_path, {})
    assert choose(found, master="node-z", NCCL_SOCKET_IFNAME="a", GLOO_SOCKET_IFNAME="b") == Choice()


def test_a_name_that_no_server_knows_is_given_up_soon() -> None:
    assert HostRoot().addresses("no-such-host.invalid") == ()
    assert HostRoot().addresses("127.0.0.1") == ("127.0.0.1",)
    assert "127.0.0.1" in HostRoot().addresses("localhost")


@pytest.mark.parametrize(
    ("address", "interface"),
    [
        ("10.1.2.3", "eno1"),
        ("8.8.8.8", "eno1"),
        ("fe80::1%eth7", "eth7"),
        ("127.0.1.1", ""),
        ("::1", ""),
    ],
)
def test_a_route_to_another_node_names_an_interface_and_one_to_itself_none(address: str, interface: str) -> None:
    known = [Route("0.0.0.0/0", "eno1", 100), Route("10.1.0.0/16", "eno1", 0), Route("127.0.0.0/8", "lo", 0)]
    assert network.interface_by(known, address) == interface
