"""A machine in a file: what is read from it is what was read on the machine, save for what names that."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import tarfile
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.machine import machines
from tests.machine.machines import ZERO, local, mapped, port, roce_gids, routes

from primus_machine import collectives as network
from primus_machine import facts, system_info
from primus_machine.captures import capture
from primus_machine.captures.anonymous import anonymise
from primus_machine.errors import RequestError
from primus_machine.facts import Facts
from primus_machine.host import HostRoot

HERE = HostRoot(environ={"A": "1"})
FABRIC = (
    *(port(f"rdma{n}", layer="Ethernet", gids=roce_gids(n), driver="bnxt_en") for n in range(8)),
    port("mlx5_bond_0"),
    routes(("0.0.0.0/0", "eno1", 100), ("10.1.0.0/16", "eno1", 100)),
)
MACHINES = {
    "MI300X": machines.amd("MI300X"),
    "MI300X in CPX": machines.amd("MI300X", parts=8, memory="NPS4"),
    "MI250X": machines.amd("MI250X"),
    "MI355X of which one is missing": machines.amd("MI355X", gpus=7),
    "H100": machines.nvidia("H100 SXM"),
    "nothing": {},
}


def of_the_machine(found: Facts) -> Facts:
    """The facts without what belongs to the reader, or was replaced."""
    routes = tuple(route._replace(network=route.network.partition("/")[2]) for route in found.network.routes)
    wires = found.network._replace(routes=routes)
    gpus = tuple(gpu._replace(uuid="") for gpu in found.gpus)
    return found._replace(
        gpus=gpus, host=HERE, time=0, free_port=0, environ={}, hostname="", cwd="", python="", network=wires
    )


def archive(path: Path, members: dict[str, bytes]) -> str:
    with tarfile.open(path, "w:gz") as packed:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            packed.addfile(member, io.BytesIO(data))
    return str(path)


def unpacked(path: str) -> dict[str, str]:
    with tarfile.open(path) as packed:
        files = {member.name: packed.extractfile(member) for member in packed}
        return {name: file.read().decode() for name, file in files.items() if file}


@pytest.mark.parametrize("name", MACHINES)
def test_detection_on_a_capture_is_that_on_the_machine(tmp_path: Path, name: str) -> None:
    there = machines.write(tmp_path / "there", machines.base(), MACHINES[name], *FABRIC)
    capture.write(there, str(tmp_path / "node.tar.gz"))
    host = capture.read(str(tmp_path / "node.tar.gz"), HERE)
    before, after = facts.read(there), facts.read(host)
    assert of_the_machine(after) == of_the_machine(before)
    assert {**system_info.describe(after), "host": ""} == {**system_info.describe(before), "host": ""}
    assert after.hostname == "captured-host"


def test_a_capture_of_a_capture_is_the_same_file(tmp_path: Path) -> None:
    there = machines.write(tmp_path / "there", machines.base(), machines.amd("MI300X"), *FABRIC)
    first, second, third = (str(tmp_path / f"{name}.tar.gz") for name in "abc")
    capture.write(there, first)
    capture.write(there, second)
    capture.write(capture.read(first, HERE), third)
    assert Path(first).read_bytes() == Path(second).read_bytes() == Path(third).read_bytes()


def test_an_unpacked_capture_is_a_machine_too(tmp_path: Path) -> None:
    there = machines.write(tmp_path / "there", machines.base(), machines.amd("MI300X"), *FABRIC)
    capture.write(there, str(tmp_path / "node.tar.gz"))
    with tarfile.open(tmp_path / "node.tar.gz") as packed:
        packed.extractall(tmp_path / "unpacked")  # ours; `filter` is newer than Python 3.11.0
    found = facts.read(capture.read(str(tmp_path / "unpacked"), HERE))
    assert of_the_machine(found) == of_the_machine(facts.read(there))
    assert (found.hostname, found.environ) == ("captured-host", {"A": "1"})


def test_this_machine_can_be_captured(tmp_path: Path) -> None:
    capture.write(HostRoot(), str(tmp_path / "here.tar.gz"))
    found = facts.read(capture.read(str(tmp_path / "here.tar.gz"), HostRoot()))
    assert of_the_machine(found) == of_the_machine(facts.read())
    assert [path.name for path in tmp_path.iterdir()] == ["here.tar.gz"]


def test_the_person_and_the_clock_are_those_of_here(tmp_path: Path) -> None:
    capture.write(machines.write(tmp_path / "there", machines.base()), str(tmp_path / "node.tar.gz"))
    host = capture.read(str(tmp_path / "node.tar.gz"), HERE)
    assert host.environ == {"A": "1"}
    assert (host.cwd(), host.python()) == (HERE.cwd(), HERE.python())
    assert host.now() >= HERE.now() - 5
    assert host.free_port()
    assert host.exists(str(tmp_path))
    assert not host.exists("/proc/meminfo-of-nobody")
    assert (host.hostname(), host.cpu_count()) == ("captured-host", 192)
    assert host.addresses("localhost") == ()


def test_nothing_that_was_not_read_is_in_the_archive(tmp_path: Path) -> None:
    tree = {"etc/shadow": "root:x", "home/me/.ssh/id_rsa": "key", "proc/1/environ": "TOKEN=1"}
    there = machines.write(tmp_path / "there", machines.base(), tree)
    capture.write(there, str(tmp_path / "node.tar.gz"))
    files = unpacked(str(tmp_path / "node.tar.gz"))
    assert not tree.keys() & files.keys()
    assert json.loads(files["facts.json"]) == {
        "schema": 1,
        "primus_version": json.loads(files["facts.json"])["primus_version"],
        "hostname": "captured-host",
        "cpu_count": 192,
    }


def test_nothing_that_names_the_machine_is_in_the_archive(tmp_path: Path) -> None:
    tree = machines.amd("MI300X", gpus=2) | machines.nvidia("H100 SXM", gpus=1)
    there = machines.write(tmp_path / "there", machines.base(), tree, *FABRIC)
    capture.write(there, str(tmp_path / "node.tar.gz"))
    text = "\n".join(unpacked(str(tmp_path / "node.tar.gz")).values())
    for name in ("gpu-node-17", "15304831566906821", "7773567030725891371", "GPU-9221d5d1", "0e42:a1ff:fe65", "0a14:"):
        assert name not in text


MAC = "5ea25e102030"
LEAKY = (
    port("mlx5_0", layer="Ethernet", gids=[("2001:0db8:00aa:0000:5ca2:5eff:fe10:2030", "RoCE v2")]),
    port(f"roce{MAC}", layer="Ethernet", gids=[(mapped("10.20.0.7"), "RoCE v2")]),
    port("ibp1s0"),
    routes(("10.20.0.0/16", f"enx{MAC}", 5), ("10.20.128.0/17", "ens2", 0), ("0.0.0.0/0", "ens1", 0)),
    {
        "proc/net/ipv6_route": f"20010db800aa00005ca25efffe102030 80 {'0' * 32} 00 {'0' * 32} 00000000 00000003 00000000 "
        f"80200001     enx{MAC}\nfe80000000000000{'0' * 16} 40 {'0' * 32} 00 fe800000000000005ca25efffe102030 00000100 "
        "00000001 00000000 00000001     ens1\n20010db800bb no route\n",
        "home/alice/rocm-secret/.info/version": "6.3.0\n",
        "home/alice/cuda-secret/version.json": '{"cuda": {"version": "12.1"}}',
        "usr/local/cuda/version.json": '{"cuda": {"version": "13.0"}}',
    },
)
PATHS = {"ROCM_PATH": "/home/alice/rocm-secret", "CUDA_HOME": "/home/alice/cuda-secret"}


def packed(tmp_path: Path, *trees: dict[str, str]) -> tuple[HostRoot, str]:
    """A machine of somebody with paths of their own, and its capture."""
    there = machines.write(tmp_path / "there", machines.base(), *trees, environ=PATHS)
    capture.write(there, str(tmp_path / "node.tar.gz"))
    return there, str(tmp_path / "node.tar.gz")


def test_no_address_name_or_path_of_somebody_is_in_the_archive(tmp_path: Path) -> None:
    files = unpacked(packed(tmp_path, machines.amd("MI300X", gpus=1), *LEAKY)[1])
    with tarfile.open(tmp_path / "node.tar.gz") as archive:
        everything = "\n".join([*archive.getnames(), *files.values()]).lower()
    for name in (MAC, "5ca2:5e", "5ca25e", "0014", "0a14", "0db8", "alice", "secret", "home", "no route"):
        assert name not in everything
    assert files["opt/rocm/.info/version"] == "6.3.0"


def test_a_capture_without_these_plans_as_the_machine_does(tmp_path: Path) -> None:
    there, path = packed(tmp_path, machines.amd("MI300X", gpus=1), *LEAKY)
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path / "unpacked")  # ours; `filter` is newer than Python 3.11.0
    before = facts.read(there)
    for host in (capture.read(path, HERE), capture.read(str(tmp_path / "unpacked"), HERE)):
        after = facts.read(host)
        assert (after.rocm, after.cuda) == (before.rocm, before.cuda) == ("6.3.0", "12.1")
        names = [found.device for found in after.network.ports]
        assert names == ["ibp1s0", "mlx5_0", "roce020000000001"]
        assert [found.gid_index for found in after.network.ports] == [-1, 0, 0]
        interfaces = [route.interface for route in after.network.routes]
        assert interfaces == ["enx020000000001", "ens2", "ens1", "enx020000000001", "ens1"]
        assert [f"{r.network} {r.metric}" for r in after.network.routes] == [
            "10.0.0.0/16 5",
            "10.0.128.0/17 0",
            "0.0.0.0/0 0",
            "2000::/128 0",
            "fe80::/64 256",
        ]
        assert chosen(after, "8.8.8.8") == chosen(before, "8.8.8.8").replace(MAC, "020000000001")
        assert chosen(after, "10.0.128.9") == chosen(before, "10.20.128.9").replace(MAC, "020000000001")
    capture.write(capture.read(path, HERE), str(tmp_path / "again"))
    assert (tmp_path / "again").read_bytes() == Path(path).read_bytes()


def chosen(found: Facts, master: str) -> str:
    """What the collectives get on two nodes."""
    variables = network.variables(found, has_gpus=True, nnodes=2, master_address=master, user_environ={})
    return ", ".join(f"{variable.name}{variable.value}" for variable in variables)


IPV4 = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=4, network="10.0.0.0/8"))
IPV6 = st.one_of(
    st.ip_addresses(v=6), st.ip_addresses(v=6, network="fd00::/56"), st.ip_addresses(v=6, network="fe80::/64")
)


@given(st.lists(st.tuples(IPV4, st.integers(0, 32)), max_size=8), IPV4)
@pytest.mark.full
def test_a_replaced_address_is_routed_as_the_one_that_it_stands_for(
    networks: list[tuple[IPv4Address, int]], master: IPv4Address
) -> None:
    lines = [(f"{IPv4Network((at, length), strict=False)}", f"e{n}", n) for n, (at, length) in enumerate(networks)]
    tree = routes(*lines) | {GID_FILE: mapped(str(master))}
    replaced = anonymise(tree)
    words = replaced[GID_FILE].split(":")
    image = str(IPv4Address(int(words[6] + words[7], 16)))
    assert routed(replaced, image) == routed(tree, str(master))
    assert anonymise(replaced) == {path: text.strip() for path, text in replaced.items()}
    for special in ("is_loopback", "is_multicast", "is_link_local"):
        assert getattr(IPv4Address(image), special) == getattr(master, special)


@pytest.mark.full
@given(st.lists(st.tuples(IPV6, st.integers(0, 128)), max_size=8), IPV6)
def test_so_is_one_of_ipv6(networks: list[tuple[IPv6Address, int]], master: IPv6Address) -> None:
    lines = [
        f"{IPv6Network((at, length), strict=False).network_address.packed.hex()} {length:02x} {'0' * 32} 00 {'0' * 32} "
        f"{n:08x} 00000001 00000000 00000001 e{n}"
        for n, (at, length) in enumerate(networks)
    ]
    tree = {"proc/net/ipv6_route": "\n".join(lines), GID_FILE: master.exploded}
    replaced = anonymise(tree)
    assert routed(replaced, str(IPv6Address(replaced[GID_FILE]))) == routed(tree, str(master))
    assert anonymise(replaced) == replaced


GID_FILE = "sys/class/infiniband/a/ports/1/gids/0"


def routed(files: dict[str, str], address: str) -> str:
    texts = {path: text.strip() for path, text in files.items()}
    host = capture.CapturedHost("", HostRoot(environ={}), texts, {})
    return network.interface_to(facts.read(host).network.routes, address)


@pytest.mark.full
@given(st.lists(st.from_regex(r"\A(en|roce|ib)x?([0-9a-f]{12}|[0-9a-f]{16})\Z"), unique=True, max_size=6))
def test_names_made_of_addresses_stay_in_their_order_and_apart(names: list[str]) -> None:
    files = {f"sys/class/infiniband/{name}/ports/1/state": name for name in names}
    replaced = {old: path.split("/")[3] for path, old in anonymise(files).items()}
    assert len(set(replaced.values())) == len(names)
    again = {
        path.split("/")[3]: old
        for path, old in anonymise({f"a/b/c/{name}/": name for name in replaced.values()}).items()
    }
    assert all(new == old for new, old in again.items())
    for start in ("enx", "roce", "ib"):
        alike = sorted((name for name in names if re.fullmatch(f"{start}[0-9a-f]{{12}}", name)), key=natural)
        assert [replaced[name] for name in alike] == sorted((replaced[name] for name in alike), key=natural)


def natural(name: str) -> str:
    """As detection orders ports."""
    return re.sub(r"\d+", lambda digits: digits[0].zfill(9), name)


def test_a_version_to_which_a_variable_led_is_found_without_it(tmp_path: Path) -> None:
    tree = {"sw/rocm/.info/version": "6.4.1-83\n", "sw/cuda/version.txt": "CUDA Version 10.2.89\n"}
    named = {"ROCM_PATH": "/sw/rocm", "CUDA_HOME": "/sw/cuda"}
    there = machines.write(tmp_path / "there", tree, environ=named)
    capture.write(there, str(tmp_path / "node.tar.gz"))
    found = facts.read(capture.read(str(tmp_path / "node.tar.gz"), HERE))
    assert (found.rocm, found.cuda) == ("6.4.1", "10.2.89")


def test_the_same_name_gets_the_same_replacement_and_another_another() -> None:
    files = {
        "sys/class/kfd/1/properties": "unique_id 77\nhive_id 5\nsimd_count 77",
        "sys/class/kfd/2/properties": "unique_id 78\nhive_id 5",
        "sys/class/kfd/3/properties": "unique_id 77\nhive_id 0",
    }
    first, second, third = anonymise(files).values()
    unique = [re.findall(r"unique_id (\d+)", text)[0] for text in (first, second, third)]
    assert unique[0] == unique[2] != unique[1]
    assert not {"77", "78"} & set(unique)
    assert "simd_count 77" in first
    assert first.splitlines()[1] == second.splitlines()[1] != "hive_id 5"
    assert third.splitlines()[1] == "hive_id 0"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("proc/driver/nvidia/gpus/a/information", "GPU UUID: \t GPU-9221d5d1-b60b-a624-bf14-0a1819cfda3b"),
        ("sys/class/infiniband/mlx5_0/node_guid", "0c42:a103:0065:1a2b"),
        ("sys/class/infiniband/mlx5_0/sys_image_guid", "0c42:a103:0065:1a2b"),
        ("sys/class/net/eth0/address", "0c:42:a1:65:1a:2b"),
        ("sys/bus/pci/devices/0000:05:00.0/unique_id", "d46a2d6d1a2b3c4d"),
        ("sys/class/dmi/id/product_serial", "S123456X"),
        ("etc/hostname", "gpu-node-17"),
    ],
)
def test_each_kind_of_name_is_replaced(path: str, text: str) -> None:
    replaced = anonymise({path: text})[path]
    assert replaced != text
    assert not re.search("9221d5d1|0c42|0c:42|d46a|S123|node-17", replaced)


GIDS = st.one_of(
    st.just(ZERO),
    st.integers(0, 0xFFFF).map(local),
    st.ip_addresses(v=4).map(str).map(mapped),
    st.ip_addresses(v=6).map(lambda address: address.exploded),
)


def kind(gid: str) -> str:
    if gid == ZERO:
        return "zero"
    return "mapped" if gid.startswith(mapped("0.0.0.0")[:30]) else "local" if gid.startswith("fe80:") else "global"


@pytest.mark.full
@given(st.lists(GIDS, max_size=20))
def test_a_gid_stays_what_it_is_and_is_another(gids: list[str]) -> None:
    files = {f"sys/class/infiniband/a/ports/1/gids/{index:03}": gid for index, gid in enumerate(gids)}
    replaced = list(anonymise(files).values())
    assert [kind(gid) for gid in replaced] == [kind(gid) for gid in gids]
    assert len(set(zip(gids, replaced, strict=True))) == len(set(gids)) == len(set(replaced))


def test_what_is_no_capture_is_refused_with_its_name(tmp_path: Path) -> None:
    about = json.dumps({"schema": 1, "hostname": "x", "cpu_count": 1}).encode()
    (tmp_path / "text").write_text("no archive")
    (tmp_path / "cut").write_bytes(gzip.compress(b"x" * 1000)[:20])
    (tmp_path / "gzip").write_bytes(gzip.compress(b"x" * 1000))
    (tmp_path / "folder").mkdir()
    (tmp_path / "bomb").write_bytes(gzip.compress(bytes(32 << 20)))
    bad = {
        "text": "Not a gzipped file",
        "cut": "ended before",
        "gzip": "",
        "folder": "neither sys/ nor proc/",
        "bomb": "larger than 16 MiB",
        "missing": "No such file",
        archive(tmp_path / "other", {"a": b"b"}): "no valid facts.json",
        archive(tmp_path / "broken", {"facts.json": b"[" * 100_000}): "it has no valid facts.json",
        archive(tmp_path / "list", {"facts.json": b"[1]"}): "it has no valid facts.json",
        archive(
            tmp_path / "newer", {"facts.json": b'{"schema": 9}'}
        ): "its schema version is 9, but this version of Primus reads 1",
        archive(tmp_path / "deep", {"facts.json": about, "a/" * 100 + "b": b""}): "too deep",
    }
    for name, why in bad.items():
        with pytest.raises(RequestError, match="is not a capture of a machine") as refused:
            capture.read(str(tmp_path / name), HERE)
        assert str(tmp_path / name) in refused.value.what
        assert why in refused.value.why


def test_a_path_or_link_that_leads_out_of_the_archive_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of this machine")
    path = tmp_path / "trap"
    with tarfile.open(path, "w:gz") as packed:
        for name, data in {"facts.json": b'{"schema": 1}', "../outside": b"o", "/absolute": b"a"}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            packed.addfile(member, io.BytesIO(data))
        link = tarfile.TarInfo("proc/link")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "secret")
        packed.addfile(link)
    host = capture.read(str(path), HERE)
    assert host.text("/proc/link") is None
    assert host.text("/outside") is None
    assert host.text("/absolute") == "a"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["secret", "trap"]


def nested_names(times: int) -> bytes:
    """A name for a name for a name: tarfile calls itself for each."""
    head = tarfile.TarInfo("././@LongLink")
    head.type, head.size = tarfile.GNUTYPE_LONGNAME, 2
    return (head.tobuf(tarfile.USTAR_FORMAT) + b"a\0".ljust(512, b"\0")) * times + tarfile.TarInfo("x").tobuf()


def endless(size: str) -> bytes:
    """A file that says it has that many bytes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("facts.json")
        member.pax_headers = {"size": size}
        archive.addfile(member)
    return packed.getvalue()


HARM = {
    "names in names": nested_names(3000),
    "30 digits of bytes": endless("9" * 30),
    "5000 digits of bytes": endless("9" * 5000),
    "fewer bytes than none": endless("-5"),
}


@pytest.mark.parametrize("content", HARM.values(), ids=HARM)
def test_an_archive_that_was_made_to_do_harm_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "trap").write_bytes(gzip.compress(content))
    with pytest.raises(RequestError, match="is not a capture of a machine"):
        capture.read(str(tmp_path / "trap"), HERE)


@pytest.mark.parametrize("name", ["sys/ev\x1b[31mil", "sys/ev\nil"])
def test_a_name_that_would_write_to_the_terminal_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RequestError) as refused:
        capture.read(archive(tmp_path / "trap", {"facts.json": b'{"schema": 1}', name: b""}), HERE)
    assert "characters that no kernel writes" in refused.value.why
    assert refused.value.why.isprintable()


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cannot be written") as refused:
        capture.write(machines.write(tmp_path, machines.base()), str(tmp_path / "nowhere" / "node.tar.gz"))
    assert refused.value.why == "No such file or directory"
    assert refused.value.fix == "name a file in an existing folder that is writable"


def test_no_place_is_said(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="the capture has no file name"):
        capture.write(machines.write(tmp_path, machines.base()), "")


@pytest.mark.parametrize("kind", ["fifo", "link", "dangling", "folder"])
def test_what_is_no_regular_file_is_never_replaced(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "node.tar.gz"
    make: dict[str, Callable[[], object]] = {
        "fifo": lambda: os.mkfifo(target),
        "link": lambda: target.symlink_to(__file__),
        "dangling": lambda: target.symlink_to("nowhere"),
        "folder": target.mkdir,
    }
    make[kind]()
    before = target.lstat()
    with pytest.raises(RequestError, match="cannot be written") as refused:
        capture.write(machines.write(tmp_path / "there", machines.base()), str(target))
    assert "not a regular file" in refused.value.why
    assert target.lstat() == before


def test_a_file_that_was_there_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "node.tar.gz"
    target.write_text("older")
    capture.write(machines.write(tmp_path / "there", machines.base()), str(target))
    assert facts.read(capture.read(str(target), HERE)).cpu_count == 192
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["node.tar.gz", "there"]
