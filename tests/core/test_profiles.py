"""GPU profiles: which one a machine gets, what its rows say, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.machine.machines import amd, base, nvidia, port, write

from primus_core.environment import profiles
from primus_core.environment.profile_files import Profile, read
from primus_core.environment.profiles import Folder
from primus_core.environment.resolve import resolve
from primus_core.errors import ConfigError
from primus_core.plan.plan import Variable
from primus_machine import facts
from primus_machine.facts import Facts
from primus_machine.gpus import models

FOLDER = Path(profiles.__file__).parent.parent / "data" / "profiles"
BUILT_IN = {path.stem: read(str(path)) for path in sorted(FOLDER.glob("*.toml"))}
ROWS = [pytest.param(row, id=f"{name}: {row.name}") for name, profile in BUILT_IN.items() for row in profile.rows]

UNKNOWN = {path: text.replace(f"device_id {0x75A0}\n", f"device_id {0x75A8}\n") for path, text in amd("MI350X").items()}


def machine(root: Path, *trees: Mapping[str, str], **environ: str) -> Facts:
    """The facts of a machine that consists of these trees."""
    return facts.read(write(root, base(), *trees, environ=environ))


def found(here: Facts, framework: str = "", file: str = "", *folders: Folder) -> dict[str, tuple[str, str]]:
    """Value and origin of each variable that the profiles set; the last of a name wins."""
    variables, _ = profiles.variables(here, framework=framework, profile_file=file, folders=folders)
    return {v.name: (v.value, v.origin) for v in variables}


def values(here: Facts, framework: str = "", file: str = "", *folders: Folder) -> dict[str, str]:
    """The same, values alone."""
    return {name: value for name, (value, _) in found(here, framework, file, *folders).items()}


def chain(here: Facts, file: str = "", *folders: Folder) -> list[str]:
    """The names of the profiles, base first."""
    return [profile.name for profile in profiles.select(here, folders, file)[0]]


def profile(folder: Path, text: str, name: str = "mine.toml") -> str:
    """A file with this text."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


# The data


@pytest.mark.parametrize("row", ROWS)
def test_every_row_says_why_and_where_that_is_written(row: object) -> None:
    why, source = getattr(row, "why", ""), getattr(row, "source", "")
    assert len(why) > 20
    assert re.search(r"https://\S+|\S+/\S+\.(py|sh)", source), source


@pytest.mark.parametrize("row", ROWS)
def test_no_row_names_what_only_the_machine_knows(row: object) -> None:
    name, value = str(getattr(row, "name", "")), str(getattr(row, "value", ""))
    assert not re.search(r"GID|_HCA$|IFNAME|VISIBLE_DEVICES|MASTER_|CHECKS_DISABLE", name)
    assert not re.search(r"\d+\.\d+\.\d+\.\d+|(mlx|bnxt|ionic)\w*\d|/home|/opt", value)


def test_every_model_of_the_table_has_a_profile_below_its_vendors() -> None:
    for model in models.load():
        own = BUILT_IN[model.name.replace(" ", "-")]
        assert (own.name, own.extends) == (model.name, model.vendor)
    assert {name.replace("-", " ") for name in BUILT_IN} == {m.name for m in models.load()} | {"base", "amd", "nvidia"}


def test_base_asks_for_nothing_that_only_a_gpu_needs() -> None:
    always = {row.name for row in BUILT_IN["base"].rows if not row.when}
    assert always == {"PYTHONFAULTHANDLER"}


# Which profile


@pytest.mark.parametrize("model", ["MI210", "MI250X", "MI300X", "MI308X", "MI325X", "MI350X", "MI355X"])
def test_an_amd_model_gets_its_own_profile(model: str, tmp_path: Path) -> None:
    assert chain(machine(tmp_path, amd(model))) == ["base", "amd", model]


@pytest.mark.parametrize("model", ["H100 SXM", "H200 SXM", "B200"])
def test_an_nvidia_model_gets_its_own_profile(model: str, tmp_path: Path) -> None:
    assert chain(machine(tmp_path, nvidia(model))) == ["base", "nvidia", model]


def test_a_machine_without_a_gpu_gets_base_and_no_note(tmp_path: Path) -> None:
    here = machine(tmp_path)
    assert chain(here) == ["base"]
    assert profiles.variables(here, framework="megatron")[1] == here.notes == ()
    assert values(here, "megatron") == {"PYTHONFAULTHANDLER": "1"}


@pytest.mark.parametrize("said", ["MI300X", "MI300X OAM", "AMD Instinct MI300X OAM", "mi300x"])
def test_what_the_person_says_the_gpu_is_wins(said: str, tmp_path: Path) -> None:
    here = machine(tmp_path, amd("MI355X"), PRIMUS_GPU_MODEL=said)
    assert chain(here)[-1] == "MI300X"
    assert "RCCL_WARP_SPEED_AUTO" not in values(here), "conditions follow the model that was said"


def test_a_person_may_want_no_profile(tmp_path: Path) -> None:
    here = machine(tmp_path, amd("MI300X"), PRIMUS_GPU_MODEL="none")
    assert chain(here) == ["base"]
    assert profiles.select(here)[1] == ()


def test_a_gpu_that_nobody_knows_gets_base_and_one_loud_note(tmp_path: Path) -> None:
    here = machine(tmp_path, UNKNOWN)
    assert chain(here) == ["base"]
    notes = [note for note in (*here.notes, *profiles.select(here)[1]) if "1002:75a8" in note]
    assert len(notes) == 1
    assert notes[0].startswith("UNKNOWN GPU 1002:75a8")
    assert "PRIMUS_GPU_MODEL" in notes[0]
    alone = profiles.select(here._replace(notes=()))[1]
    assert len(alone) == 1, "also where the facts say nothing"
    assert "docs/gpu-profiles.md" in alone[0]


# What they set


def of_maxtext(here: Facts, **environ: str) -> dict[str, Variable]:
    """What a run with MaxText gets, where the person has `environ`, by name."""
    rows, _ = profiles.variables(here, framework="maxtext", environ=environ)
    return {variable.name: variable for variable in resolve(environ, low=rows, forced=())}


def test_maxtext_gets_a_list_of_flags_of_which_the_persons_own_win(tmp_path: Path) -> None:
    here = machine(tmp_path, nvidia("B200"))
    flags = {
        flag.name: flag
        for flag in of_maxtext(here, XLA_FLAGS="--xla_gpu_enable_pipelined_all_gather=false --xla_own=1")[
            "XLA_FLAGS"
        ].flags
    }
    assert flags["--xla_own"].origin == "user"
    assert flags["--xla_gpu_enable_pipelined_all_gather"].overrode == (("true", "profile nvidia"),)
    assert (flags["--xla_gpu_enable_command_buffer"].value, flags["--xla_gpu_enable_command_buffer"].origin) == (
        "FUSION,CUSTOM_CALL",
        "profile B200",
    )
    assert "--xla_gpu_deterministic_ops" not in flags
    repeated = of_maxtext(here, PRIMUS_DETERMINISTIC="1")["XLA_FLAGS"].value
    assert "--xla_gpu_deterministic_ops=true" in repeated.split()


def test_a_row_may_give_way_to_a_variable_of_another_name(tmp_path: Path) -> None:
    here = machine(tmp_path, amd("MI300X"))
    assert of_maxtext(here)["XLA_PYTHON_CLIENT_MEM_FRACTION"].value == ".97"
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" not in of_maxtext(here, XLA_CLIENT_MEM_FRACTION=".5")


def test_profiles_differ_where_the_hardware_does(tmp_path: Path) -> None:
    here = {model: values(machine(tmp_path / model, amd(model)), "megatron") for model in ("MI210", "MI300X", "MI355X")}
    both = {name: here["MI300X"][name] for name in here["MI300X"].keys() & here["MI355X"].keys() & here["MI210"].keys()}
    assert both["GPU_MAX_HW_QUEUES"] == "2"
    assert {m: v.items() - both.items() for m, v in here.items()} == {
        "MI210": {("HSA_FORCE_FINE_GRAIN_PCIE", "1")},
        "MI300X": {
            ("HSA_NO_SCRATCH_RECLAIM", "1"),
            ("NVTE_CK_IS_V3_ATOMIC_FP32", "1"),
            ("RCCL_MSCCLPP_ENABLE", "0"),
            ("RCCL_MSCCL_ENABLE", "0"),
        },
        "MI355X": {("HSA_NO_SCRATCH_RECLAIM", "1"), ("RCCL_WARP_SPEED_AUTO", "0"), ("NVTE_ROCM_ENABLE_MXFP8", "1")},
    }


@pytest.mark.parametrize("model", ["MI350X", "MI355X"])
def test_warp_speed_is_off_on_all_of_its_generation(model: str, tmp_path: Path) -> None:
    assert found(machine(tmp_path, amd(model)))["RCCL_WARP_SPEED_AUTO"] == ("0", "profile amd")


def test_the_order_that_megatron_needs_is_for_megatron_before_blackwell(tmp_path: Path) -> None:
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    hopper, blackwell = machine(tmp_path / "h", nvidia("H100 SXM")), machine(tmp_path / "b", nvidia("B200"))
    assert values(hopper, "megatron")[name] == "1"
    assert name not in values(hopper, "torchtitan")
    assert name not in values(blackwell, "megatron"), "the child's row takes the parent's away"


def test_a_row_for_a_network_card_needs_an_active_port_of_it(tmp_path: Path) -> None:
    up = machine(tmp_path / "up", amd("MI300X"), port("ionic_0", driver="ionic"))
    down = machine(tmp_path / "down", amd("MI300X"), port("ionic_0", driver="ionic", state="1: DOWN"))
    assert values(up)["NCCL_IB_USE_INLINE"] == "1"
    assert "NCCL_IB_USE_INLINE" not in values(down)


@pytest.mark.parametrize(("version", "there"), [("6.1.3", True), ("6.2.0", False), ("7.0.0", False), ("", False)])
def test_a_row_for_a_range_of_rocm_needs_a_version_in_it(version: str, there: bool, tmp_path: Path) -> None:
    here = machine(tmp_path, amd("MI300X"))._replace(rocm=version)
    assert ("HIP_FORCE_DEV_KERNARG" in values(here)) is there


def test_determinism_is_asked_for_in_the_environment_or_by_an_option(tmp_path: Path) -> None:
    wanted = {
        "NCCL_ALGO": "Ring",
        "PRIMUS_TURBO_AUTO_TUNE": "0",
        "ROCBLAS_DEFAULT_ATOMICS_MODE": "0",
        "TORCH_COMPILE_DISABLE": "1",
    }
    here = machine(tmp_path, amd("MI300X"))
    assert not wanted.keys() & values(here).keys()
    asked = here._replace(environ={"PRIMUS_DETERMINISTIC": "1"})
    assert wanted.items() <= values(asked).items()
    variables, _ = profiles.variables(here, framework="", environ={"PRIMUS_DETERMINISTIC": "1"})
    assert wanted.items() <= {v.name: v.value for v in variables}.items()


# Files of others


def test_a_persons_file_is_laid_over_the_gpus_profile(tmp_path: Path) -> None:
    path = profile(
        tmp_path,
        '[[variable]]\nname = "GPU_MAX_HW_QUEUES"\nvalue = "8"\n[[variable]]\nname = "RCCL_MSCCL_ENABLE"\nunset = true\n',
    )
    here = found(machine(tmp_path / "m", amd("MI300X")), "", path)
    assert here["GPU_MAX_HW_QUEUES"] == ("8", f"profile {path}")
    assert "RCCL_MSCCL_ENABLE" not in here
    assert here["HSA_NO_SCRATCH_RECLAIM"][1] == "profile amd"


def test_a_persons_file_that_extends_another_stands_on_that(tmp_path: Path) -> None:
    path = profile(tmp_path, 'extends = "MI210"\n[[variable]]\nname = "A"\nvalue = "1"\n')
    here = machine(tmp_path / "m", amd("MI300X"))
    assert chain(here, path) == ["base", "amd", "MI210", "mine"]
    assert values(here, "", path)["A"] == "1"


def test_a_package_brings_a_gpu_by_its_pci_id(tmp_path: Path) -> None:
    profile(tmp_path / "p", 'name = "MI350P"\nextends = "amd"\npci_ids = ["1002:75A8"]\n')
    theirs = Folder(str(tmp_path / "p"), "acme-primus 2.1.0")
    here = machine(tmp_path / "m", UNKNOWN)
    selected, notes = profiles.select(here, [theirs])
    assert [p.origin for p in selected] == ["profile base", "profile amd", "profile MI350P (acme-primus 2.1.0)"]
    assert notes == ()
    assert [note for note in here.notes if profiles.outdated(note, selected)]
    said = machine(tmp_path / "s", amd("MI300X"), PRIMUS_GPU_MODEL="MI350P")
    assert chain(said, "", theirs)[-1] == "MI350P", "or by the name that the person says"


@pytest.mark.parametrize(("name", "other"), [("MI300X", "Primus itself"), ("X1", "one 1.0")])
def test_two_profiles_of_one_name_are_refused_with_both_sources(name: str, other: str, tmp_path: Path) -> None:
    profile(tmp_path / "one", 'name = "X1"\n')
    profile(tmp_path / "two", f'name = "{name}"\n')
    folders = [Folder(str(tmp_path / "one"), "one 1.0"), Folder(str(tmp_path / "two"), "two 2.0")]
    with pytest.raises(ConfigError, match=f"two profiles are called '{name}'") as caught:
        profiles.select(machine(tmp_path / "m", amd("MI300X")), folders)
    assert caught.value.why == f"one is of {other}, one of two 2.0"


def test_a_package_whose_folder_is_gone_is_named(tmp_path: Path) -> None:
    gone = Folder(str(tmp_path / "gone"), "acme-primus 2.1.0")
    with pytest.raises(ConfigError, match=r"profiles of acme-primus 2\.1\.0 are missing"):
        profiles.select(machine(tmp_path / "m", amd("MI300X")), [gone])
    assert chain(machine(tmp_path / "n"), "", gone) == ["base"], "without a GPU nobody looks"


def test_profiles_that_extend_each_other_are_refused(tmp_path: Path) -> None:
    profile(tmp_path / "p", 'name = "A"\nextends = "B"\n', "a.toml")
    profile(tmp_path / "p", 'name = "B"\nextends = "A"\n', "b.toml")
    path = profile(tmp_path, 'extends = "A"\n')
    with pytest.raises(ConfigError, match="in a circle") as caught:
        profiles.select(machine(tmp_path / "m"), [Folder(str(tmp_path / "p"), "acme 1.0")], path)
    assert caught.value.why == "A > B > A"


def test_a_profile_that_extends_an_unknown_one_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    path = profile(tmp_path, 'extends = "nvidea"\n')
    with pytest.raises(ConfigError, match="unknown profile 'nvidea'") as caught:
        profiles.select(machine(tmp_path / "m"), (), path)
    assert caught.value.where == path
    assert caught.value.fix == "did you mean 'nvidia'?"


ROW = '[[variable]]\nname = "A"\nvalue = "1"\n'
WRONG = {
    "this is not valid TOML": ("name = ", "cannot be read"),
    "an unknown key": ('extend = "amd"\n', "unknown key 'extend' of a profile"),
    "an unknown key of a row": (ROW + 'vaule = "1"\n', "unknown key 'vaule' of a variable"),
    "a number": ('[[variable]]\nname = "A"\nvalue = 1\n', "value = 1 is not a valid text"),
    "no name": ('[[variable]]\nvalue = "1"\n', "a variable has no name"),
    "no value": ('[[variable]]\nname = "A"\n', "A needs a value, or unset = true"),
    "both": (ROW + "unset = true\n", "A needs a value, or unset = true"),
    "no variable's name": ('[[variable]]\nname = "A B"\nvalue = "1"\n', "'A B' cannot be set by a profile"),
    "an escape": ('[[variable]]\nname = "A\\u001b[31m"\nvalue = "1"\n', r"'A\x1b[31m' cannot be set by a profile"),
    "Primus's own": ('[[variable]]\nname = "RANK"\nvalue = "1"\n', "'RANK' cannot be set by a profile"),
    "twice": (ROW + ROW, "A is set twice"),
    "an unknown condition": (ROW + 'when = { arch = "gfx942" }\n', "unknown condition 'arch'"),
    "a wrong condition": (ROW + 'when = { deterministic = "1" }\n', "must be true or false"),
    "an empty condition": (ROW + "when = { nic = [] }\n", "must be text"),
    "no version": (ROW + 'when = { rocm = "6.2" }\n', "this is not a version"),
    "a release that is compatible with any": (
        ROW + 'when = { rocm = "~=6" }\n',
        "[[variable]] 1 (A): when rocm = '~=6'",
    ),
    "an order of a family": (
        ROW + 'when = { cuda = [">=12", ">=6.*"] }\n',
        "(A): when cuda = '>=6.*': this is not a version",
    ),
    "a version without an end": (ROW + f'when = {{ rocm = ">={"9" * 5000}" }}\n', "this is not a version"),
    "every version": (ROW + 'when = { rocm = "" }\n', "this is not a version"),
    "lists without an end": ("x = " + "[" * 20000, "cannot be read"),
    "no row": ("variable = [1]\n", "1 is not a row"),
    "no PCI id": ('pci_ids = ["75a8"]\n', "not a PCI id"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_file_is_refused_with_its_name_and_what_is_wrong(what: str, tmp_path: Path) -> None:
    text, message = WRONG[what]
    path = profile(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read(path)
    assert caught.value.where.startswith(path)
    assert message in f"{caught.value.where}: {caught.value.what}"


def test_rows_of_one_name_with_different_conditions_are_alternatives(tmp_path: Path) -> None:
    text = "".join(
        f'[[variable]]\nname = "A"\nvalue = "{gfx}"\nwhen = {{ architecture = ["{gfx}"] }}\n' for gfx in ("gfx942", "x")
    )
    path = profile(tmp_path, text)
    assert values(machine(tmp_path / "m", amd("MI300X")), "", path)["A"] == "gfx942"


def test_of_rows_of_one_name_the_last_that_holds_wins_also_where_it_takes_away(tmp_path: Path) -> None:
    head = '[[variable]]\nname = "GPU_MAX_HW_QUEUES"\n'
    there, gone = head + 'value = "9"\nwhen = { architecture = "gfx942" }\n', head + "unset = true\n"
    here = machine(tmp_path / "m", amd("MI300X"))
    when = 'when = { framework = "megatron" }\n'
    last_unset, last_set = profile(tmp_path, there + gone + when), profile(tmp_path, gone + when + there, "other.toml")
    assert "GPU_MAX_HW_QUEUES" not in values(here, "megatron", last_unset)
    assert values(here, "torchtitan", last_unset)["GPU_MAX_HW_QUEUES"] == "9"
    assert values(here, "megatron", last_set)["GPU_MAX_HW_QUEUES"] == "9"


@pytest.mark.parametrize("wanted", [">=6.2,<7", "~=6.2", "==6.*", "!=6.3", " >= 6.2 , < 7 "])
def test_a_range_is_written_as_pip_writes_it(wanted: str, tmp_path: Path) -> None:
    path = profile(tmp_path, ROW + f'when = {{ rocm = "{wanted}" }}\n')
    here = machine(tmp_path / "m", amd("MI300X"))
    assert "A" in values(here, "", path)
    assert "A" not in values(here._replace(rocm="6..4"), "", path), "what the machine says is no version"


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read(str(tmp_path / "gone.toml"))


def test_only_the_files_of_the_chain_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def counted(path: str, origin: str = "") -> Profile:
        names.append(Path(path).name)
        return read(path, origin)

    profiles._read_built_in.cache_clear()
    monkeypatch.setattr(profiles, "read", counted)
    profiles.select(machine(tmp_path))
    assert names == ["base.toml"]
    profiles._read_built_in.cache_clear()
