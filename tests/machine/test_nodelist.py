"""Slurm's node lists: the same names in the same order as `scontrol show hostnames` gives."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primus_machine.errors import RequestError
from primus_machine.nodelist import host_count, hosts


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n[01-03,7],m3", ["n01", "n02", "n03", "n7", "m3"]),
        ("n[7,1-2]", ["n7", "n1", "n2"]),
        ("n[09-11]", ["n09", "n10", "n11"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("a[1-2]b[01-02],c", ["a1b01", "a1b02", "a2b01", "a2b02", "c"]),
        ("a[1-2]b[1-2]c[1-2]", ["a1b1c1", "a1b1c2", "a2b1c1", "a2b1c2", "a1b2c1", "a1b2c2", "a2b2c1", "a2b2c2"]),
        ("gpu-[1,3]-ib", ["gpu-1-ib", "gpu-3-ib"]),
    ],
)
def test_a_list_names_its_hosts_in_order(text: str, names: list[str]) -> None:
    assert list(hosts(text)) == names
    assert host_count(text) == len(names)


def test_the_first_of_endless_hosts_is_known_at_once() -> None:
    assert next(hosts("rack[1-999999999]n[0001-999999999]")) == "rack1n0001"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("n[1-2", "a bracket is not closed"),
        ("n1-2]", "a bracket is not closed"),
        ("n[1-[2]]", "a bracket is not closed"),
        ("n[3-1]", "the range 3-1 ends before it starts"),
        ("n[]", "neither a number nor a range"),
        ("n[1,,2]", "neither a number nor a range"),
        ("n[a-b]", "'a-b' in brackets is neither a number nor a range"),
        ("n[1-]", "neither a number nor a range"),
        ("n[-1]", "neither a number nor a range"),
    ],
)
def test_what_slurm_would_refuse_names_no_host(text: str, why: str) -> None:
    with pytest.raises(RequestError, match=re.escape(f"'{text}' is not a node list")) as error:
        host_count(text)
    assert why in error.value.why


@st.composite
def brackets(draw: st.DrawFn) -> str:
    width, first = draw(st.integers(1, 4)), draw(st.integers(0, 99))
    last = first + draw(st.integers(0, 5))
    one = f"{first:0{width}d}"
    return draw(st.sampled_from([one, f"{one}-{last:0{width}d}"]))


listed = st.lists(brackets(), min_size=1, max_size=3).map(lambda parts: f"[{','.join(parts)}]")
# A name ends in its last bracket, as in all lists that Slurm writes itself.
name = st.lists(st.tuples(st.sampled_from(["n", "a", "rack-", "x."]), listed), min_size=1, max_size=4)
nodelist = st.lists(name.map(lambda parts: "".join(itertools.chain(*parts))) | st.just("login"), min_size=1, max_size=3)


@pytest.mark.skipif(not shutil.which("scontrol"), reason="scontrol is not here")
@given(items=nodelist)
@settings(max_examples=60)
def test_scontrol_says_the_same(items: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    conf = _conf(tmp_path_factory.getbasetemp())
    text = ",".join(items)
    environ = {**os.environ, "SLURM_CONF": str(conf)}
    words = ["scontrol", "show", "hostnames", text]
    said = subprocess.run(words, env=environ, capture_output=True, text=True, check=True).stdout.split()
    assert list(hosts(text)) == said


def _conf(folder: Path) -> Path:
    """As little as scontrol wants to see."""
    path = folder / "slurm.conf"
    path.write_text("ClusterName=x\nSlurmctldHost=localhost\nNodeName=localhost\n", encoding="utf-8")
    return path
