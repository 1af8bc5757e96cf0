"""The GPUs that a person left visible, read as the drivers' runtimes read their lists.

AMD: ROCR_VISIBLE_DEVICES filters the GPUs of the machine. HIP_VISIBLE_DEVICES, or else CUDA_VISIBLE_DEVICES, indexes
what that leaves. NVIDIA: CUDA_VISIBLE_DEVICES alone. In each list an entry that names no GPU ends the list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from primus_machine.errors import RequestError
from primus_machine.units import counted

if TYPE_CHECKING:
    from primus_machine.gpus.devices import Gpu

__all__ = ["VISIBLE", "choosing", "hides_gpus", "remarks", "visible"]

_ROCR, _HIP, _CUDA = VISIBLE = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""Variables by which a person chooses GPUs."""
_NONE = ("", "nodevfiles", "none", "void")
"""First entries that hide all GPUs, beside negative numbers. Slurm writes `NoDevFiles` into a job without GPUs."""
_PAGE = "docs/direct.md"


def choosing(gpus: Sequence[Gpu], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables that have a say on `gpus`, in the order in which they apply."""
    vendor = gpus[0].vendor if gpus else ""
    # HIP reads CUDA's list also where its own is empty; to PyTorch, an empty one hides all GPUs.
    hip = _CUDA if _HIP not in environ and _CUDA in environ else _HIP
    names = (_CUDA,) if vendor == "nvidia" else (_ROCR, hip) if vendor == "amd" else VISIBLE
    return tuple(name for name in names if name in environ)


def hides_gpus(gpus: Sequence[Gpu], environ: Mapping[str, str]) -> bool:
    """Return whether the person hid every GPU, as one does to train on the CPU.

    Where no GPU is known, as on a node that submits a job, each of the variables can hide them.
    """
    return any(_hides(environ[name]) for name in choosing(gpus, environ))


def visible(gpus: Sequence[Gpu], environ: Mapping[str, str]) -> tuple[int, ...]:
    """Return the indices of those of `gpus` that are visible, in the order in which a program counts them.

    Raises:
        RequestError: a list names a GPU twice, the lists name GPUs and leave none, or HIP's is longer than ROCR's.
    """
    if not gpus or hides_gpus(gpus, environ):
        return ()
    names = choosing(gpus, environ)
    _refuse_longer(names, environ)
    left = _in_order(gpus)
    for name in names:
        left = _selected(name, environ[name], left, gpus)
    found = tuple(index for index in left if index >= 0)
    if not found:
        raise _leaves_none(gpus, names, environ)
    return found


def remarks(gpus: Sequence[Gpu], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return what a list or GPUS_PER_NODE asks for beyond the visible GPUs; none for lists that `visible` refuses."""
    try:
        count = len(visible(gpus, environ))
    except RequestError:
        return ()
    found, left = list[str](), _in_order(gpus) if count else []
    for name in choosing(gpus, environ) if count else ():
        words = [word.strip() for word in environ[name].split(",")]
        left = _selected(name, environ[name], left, gpus)
        [wrong] = words[len(left) : len(left) + 1] or [""]
        if wrong and not _hides(wrong) and not wrong.startswith("MIG-"):
            found.append(f"{name}={environ[name]}: '{wrong}' names no GPU here, and ends the list")
    wanted = environ.get("GPUS_PER_NODE", "").strip()
    if count and wanted.isdecimal() and int(wanted) > count:
        found.append(
            f"GPUS_PER_NODE is {wanted}, but {counted(count, 'GPU')} can be used here: some ranks get none of their own"
        )
    return tuple(found)


def _refuse_longer(names: Sequence[str], environ: Mapping[str, str]) -> None:
    """PyTorch counts the words of both lists before it reads them (`torch.cuda._parse_visible_devices`)."""
    most = len(environ.get(_ROCR, "").split(","))
    if {_ROCR, _HIP} <= {*names} and len(environ[_HIP].split(",")) > most:
        raise RequestError(
            f"{_HIP}={environ[_HIP]} is longer than {_ROCR}={environ[_ROCR]}",
            why=f"{_HIP} counts from 0 among the GPUs that {_ROCR} leaves; PyTorch ends with an error if it is longer",
            fix=f"name no more than {most} in {_HIP}, or unset one of the two",
        )


def _hides(text: str) -> bool:
    first = text.split(",", maxsplit=1)[0].strip()
    return first.lower() in _NONE or bool(re.match(r"-\d", first))


def _in_order(gpus: Sequence[Gpu]) -> list[int]:
    """Return the index in `gpus` of each device that the runtime counts; -1: one that is not among them."""
    places = {gpu.ordinal if gpu.ordinal >= 0 else index: index for index, gpu in enumerate(gpus)}
    return [places.get(ordinal, -1) for ordinal in range(max(places) + 1)]


def _selected(name: str, text: str, left: Sequence[int], gpus: Sequence[Gpu]) -> list[int]:
    """Return the part of `left` that a list selects."""
    chosen: list[int] = []
    words = [word.strip() for word in text.split(",")]
    is_nvidia = gpus[0].vendor == "nvidia"
    for word in words:
        # CUDA lists are of one kind, which the first entry decides.
        is_other_kind = is_nvidia and word[:4] != words[0][:4] and "-" in (word + words[0])
        place = None if is_other_kind else _place(word, left, gpus, len(chosen))
        if place is None:
            break
        if place in chosen:
            raise RequestError(
                f"{name} is '{text}', which names a GPU twice",
                why=f"'{word}' repeats an earlier entry; PyTorch then sees no GPU at all",
                fix=f"name each GPU once in {name}",
            )
        chosen.append(place)
        if word.startswith("MIG-"):
            break  # CUDA shows a process one MIG instance
    return [left[place] for place in chosen]


def _place(word: str, left: Sequence[int], gpus: Sequence[Gpu], unnamed: int) -> int | None:
    """Return the place in `left` of the device that an entry names; None: it names none, so the list ends."""
    is_nvidia = gpus[0].vendor == "nvidia"
    if word.startswith(("GPU-", "MIG-")):
        return _place_of_uuid(word, left, gpus, unnamed)
    # CUDA reads numbers as strtoul does: `1gpu` is 1. HIP and ROCr take whole numbers alone.
    number = re.match(r"\+?(\d+)", word) if is_nvidia else re.fullmatch(r"(\d+)", word)
    return int(number[1]) if number and int(number[1]) < len(left) else None


def _place_of_uuid(word: str, left: Sequence[int], gpus: Sequence[Gpu], unnamed: int) -> int | None:
    """Return the place of the one device whose UUID begins so. Where no UUID is known, entries count from the first."""
    if not any(gpu.uuid for gpu in gpus):
        return unnamed if unnamed < len(left) else None
    if word.startswith("MIG-") and not word.startswith("MIG-GPU-"):
        return 0  # its UUID does not say of which GPU it is
    uuid = word.removeprefix("MIG-").partition("/")[0].lower()
    found = [place for place, index in enumerate(left) if index >= 0 and gpus[index].uuid.lower().startswith(uuid)]
    return found[0] if len(found) == 1 else None


def _leaves_none(gpus: Sequence[Gpu], names: Sequence[str], environ: Mapping[str, str]) -> RequestError:
    lists = " and ".join(f"{name}={environ[name]}" for name in names)
    have = f"this machine has {counted(len(gpus), 'GPU device')}, counted from 0"
    if gpus[0].vendor == "amd":
        second = next((name for name in names if name != _ROCR), _HIP)
        rule = f"{_ROCR} filters them, and {second} counts from 0 among those that {_ROCR} leaves"
    else:
        rule = "an entry that names no GPU ends the list"
    verb = "leave" if len(names) > 1 else "leaves"
    return RequestError(
        f"{lists} {verb} no GPU",
        why=f"{have}; {rule}",
        fix=f"correct or unset {' or '.join(names)}; to train on the CPU, set {names[-1]}=-1",
    )
