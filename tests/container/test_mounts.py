"""The engine's own form of `--mount` is a line of CSV, as docker and podman read it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from primus_container.mounts import Mount, given
from primus_core.errors import RequestError


@pytest.mark.parametrize(
    ("text", "source", "target", "read_only"),
    [
        ("type=bind,source=/a,target=/b", "/a", "/b", False),
        ("type=bind,src=/a,dst=/b,ro", "/a", "/b", True),
        ('type=bind,"source=/a,b",target=/c', "/a,b", "/c", False),
        ('"type=bind","source=/a,b","target=/c,d",readonly', "/a,b", "/c,d", True),
        ('type=bind,"source=/say ""hi""",destination=/c/', '/say "hi"', "/c", False),
        ("type=bind,source=/a=b,target=/c=d", "/a=b", "/c=d", False),
        ("type=bind,source=/a,target=/b,readonly=true", "/a", "/b", True),
        ("type=bind,source=/a,target=/b,readonly=false", "/a", "/b", False),
        ("Type=bind,Source=/a,Target=/b", "/a", "/b", False),
        ('type=tmpfs,"target=/x,y"', "", "/x,y", False),
    ],
)
def test_a_mount_in_the_engines_form_is_read_as_csv(text: str, source: str, target: str, read_only: bool) -> None:
    assert given(text, "/") == Mount(source, target, read_only, ("--mount", text))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('type=bind,"source=/a,b,target=/c', "is not a line of CSV"),
        ('type=bind,"source=/a"b,target=/c', "is not a line of CSV"),
        ('type=bind,source="/a,b",target=/c', "a quote inside a field"),
        ("type=bind,source=/a", "has no target"),
    ],
)
def test_a_mount_that_the_engine_would_refuse_is_refused_with_what_to_write(text: str, what: str) -> None:
    with pytest.raises(RequestError, match=re.escape(what)):
        given(text, "/")


def test_a_path_with_a_comma_that_is_split_is_shown_in_quotes(tmp_path: Path) -> None:
    (tmp_path / "a,b").mkdir()
    with pytest.raises(RequestError, match="is split within") as caught:
        given(f"type=bind,src={tmp_path}/a,b,dst=/data,ro", "/")
    assert caught.value.fix == f"put that into quotes: 'type=bind,\"src={tmp_path}/a,b\",dst=/data,ro'"


def test_what_primus_writes_it_reads() -> None:
    for source in ("/a,b", '/a"b', "/a b", "/a=b", "/a,\"b'"):
        _, text = Mount(source, "/t,u", read_only=True).option()
        found = given(text, "/")
        assert (found.source, found.target, found.read_only) == (source, "/t,u", True)
