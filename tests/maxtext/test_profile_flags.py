"""The GPU profiles' rows for MaxText, held against the XLA that is installed: an unknown flag ends a run at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from primus_core.environment import flag_lists, profiles
from primus_core.environment.profile_files import Row, read

pytest.importorskip("jax", reason="it asks the installed XLA: needs primus-maxtext's environment")

FOLDER = Path(profiles.__file__).parent.parent / "data" / "profiles"
ROWS = [row for path in sorted(FOLDER.glob("*.toml")) for row in read(str(path)).rows]


def is_known(flags: str) -> bool:
    """Whether XLA reads these flags. It does so when it first compiles; one it does not know ends the process."""
    environ = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    command = [sys.executable, "-c", "import jax.numpy as np; print(np.ones(2) + 1)"]
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=300)
    assert not ended.returncode or "Unknown flag in XLA_FLAGS" in ended.stderr, ended.stderr
    return not ended.returncode


def test_xla_knows_every_flag_of_the_profiles_with_its_value() -> None:
    flags = [row.value for row in ROWS if row.name == "XLA_FLAGS"]
    assert len(flags) > 10
    assert is_known(" ".join(flags))
    assert not is_known("--xla_gpu_enable_nothing_at_all=true"), "so the above would fail"


def test_jax_refuses_both_names_of_the_memory_fraction_so_the_profiles_set_one_only_without_the_other() -> None:
    old, new = "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION"
    assert [row.when["without"] for row in ROWS if row.name == old] == [new] * 2
    command = [sys.executable, "-c", "from jaxlib import xla_client as x; x.generate_pjrt_gpu_plugin_options()"]
    for names, is_refused in (((old,), False), ((new,), False), ((old, new), True)):
        environ = {**os.environ, **dict.fromkeys(names, ".9")}
        ended = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=300)
        assert ("is specified together" in ended.stderr) is is_refused, ended.stderr


def test_a_row_of_flags_says_one_flag() -> None:
    rows: list[Row] = [row for row in ROWS if row.name in flag_lists.FLAG_LISTS]
    assert {len(flag_lists.words(row.value) or ()) for row in rows} == {1}
