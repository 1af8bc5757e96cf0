"""What a result is kept by: everything that a trial computes from.

These count: the small experiment, the files of the framework and of Primus, the code in PYTHONPATH, a person's hooks
and `primus.yaml`, the versions of Python and of all installed packages, and every variable except those that cannot
matter.

Files count by their content, so that an image that is unpacked anew is the same: some 20 ms for a framework. Only large
ones count by size and times.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["counts", "fingerprint"]

_CODE = (".py", ".so")
_PACKAGE = (*_CODE, ".json", ".toml", ".yaml", ".yml")
"""MaxText's defaults are YAML."""
_ANY = ("",)
_LARGE = 4 << 20
_SHOWN_DIGITS = 20
_NO_MATTER = re.compile(
    r"""
    # the terminal, the person and the shell
    PWD | OLDPWD | SHLVL | _ | (COLOR)?TERM | TERM(_\w+|INFO) | COLUMNS | LINES | LS_?COLORS | \w*DISPLAY | XAUTHORITY
    | WINDOW(ID|PATH) | STY | TMUX | USER | USERNAME | LOGNAME | HOME | MAIL | SHELL | EDITOR | VISUAL | PAGER | LESS\w*
    | HIST\w+ | PS\d | PROMPT_\w+ | BASH_FUNC_.* | HOST | HOSTNAME | LANG | LANGUAGE | LC_\w+ | TZ | TMPDIR | TMP | TEMP
    | PATH | MANPATH | INFOPATH | DEBUGINFOD_URLS | (?i:\w+_proxy) | KRB5CCNAME | DESKTOP_SESSION | SESSION_MANAGER
    | (XDG|SSH|TMUX|ITERM|KITTY|WEZTERM|ALACRITTY|KONSOLE|VTE|GNOME|GTK|QT|DBUS|VSCODE|WSL|WT|GIT|SUDO|GPG)_\w*
    | INVOCATION_ID | JOURNAL_STREAM | NOTIFY_SOCKET | (SYSTEMD|MEMORY_PRESSURE)_\w+
    # environments of Python, and modules: packages and LD_LIBRARY_PATH count
    | VIRTUAL_ENV | (VIRTUAL_ENV|CONDA|PYENV|PIP|UV|HATCH|PYTEST|LMOD|NVM)_\w* | LOADEDMODULES | _LMFILES_
    | MODULE(PATH|SHOME)\w* | __\w+
    # the job, the container and the launch
    | (SLURM|SLURMD|SBATCH|SRUN|PMI|PMIX|OMPI|PRTE|PBS|LSB|FLUX|KUBERNETES|ENROOT|APPTAINER|SINGULARITY|CONTAINER)_\w*
    | container | CI | (GITHUB|RUNNER|CI|BUILDKITE|WANDB|MLFLOW|TORCHELASTIC|ROLE|GROUP)_\w*
    | \w+_SERVICE_(HOST|PORT)\w* | \w+_PORT | \w+_PORT_\d+_(TCP|UDP)\w*
    | MASTER_ADDR | (LOCAL_|NODE_)?RANK | (LOCAL_)?WORLD_SIZE | NNODES | GPUS_PER_NODE
    # where something is stored, and secrets
    | \w*CACHE_(DIR|HOME|PATH) | HF_HOME | HF_\w+_CACHE | \w+_(TOKEN|SECRET|PASSWORD|API_KEY|ACCESS_KEY\w*)
    # what Primus sets for each run
    | PRIMUS_(RUN_DIR|RUN_ID|PARENT|METRICS_FILE|STREAMS|ATTENDED|OUTER|SUBMITTED|TRUSTED|CARRIED|RESTARTED_BY|HOME)
    | PRIMUS_(NUMA_CPUS|VERIFY|LOG_LEVEL|CONFIG|CACHE|PLUGINS|IMAGE|IN_HOOK|RECORD_REPLICAS|END_OF_FILE)
    """,
    re.VERBOSE,
)
"""Names of variables that differ between terminals, jobs and runs, and that change no number."""


def counts(variable: str) -> bool:
    """Return whether a variable of this name may change what a training computes."""
    return not _NO_MATTER.fullmatch(variable)


def fingerprint(
    packages: Sequence[str], environ: Mapping[str, str], *texts: str, own: Iterable[str] = (), runs: Sequence[str] = ()
) -> str:
    """Return a digest of texts, of Python packages or folders, of the environment, and of a person's `own` files.

    `runs`: run directories, whose names in a variable are no difference.
    """
    digest = hashlib.sha256()
    variables = sorted((name, _without(value, runs)) for name, value in environ.items() if counts(name))
    versions = sorted(f"{one.name} {one.version}" for one in importlib.metadata.distributions())
    paths = filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))
    for part in (*texts, sys.version, sys.prefix, repr(variables), *versions):
        _add(digest, part)
    for package in packages:
        for place in _places(package):
            _add(digest, place, *_files(place, _PACKAGE))
    for place in paths:
        _add(digest, place, *_files(place, _CODE))
    for place in own:
        _add(digest, *_files(place, _ANY))
    return digest.hexdigest()[:_SHOWN_DIGITS]


def _without(value: str, runs: Sequence[str]) -> str:
    for run in runs:
        value = value.replace(run, "") if run else value
    return value


def _add(digest: hashlib._Hash, *parts: str) -> None:
    for part in parts:
        digest.update(part.encode(errors="surrogateescape"))
        digest.update(b"\0")


def _places(package: str) -> Sequence[str]:
    """Return the folders or the file of a package; one of unknown files is never the same."""
    if os.path.isdir(package):
        return (package,)
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return (f"{package} {uuid.uuid4()}",)
    return sorted(spec.submodule_search_locations or filter(None, [spec.origin]))


def _files(place: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    """Return a line for each file, with its path below `place`."""
    if os.path.isfile(place):
        yield _line(place, os.path.basename(place))
    seen: set[str] = set()
    for folder, folders, names in os.walk(place, followlinks=True):
        real = os.path.realpath(folder)
        # a link may lead back to where it is
        folders[:] = (
            [] if real in seen else sorted(name for name in folders if name[0] != "." and name != "__pycache__")
        )
        seen.add(real)
        for path in (os.path.join(folder, name) for name in sorted(names) if name.endswith(suffixes)):
            if os.path.isfile(path):  # an editor's lock is a link to nothing
                yield _line(path, os.path.relpath(path, place))


def _line(path: str, name: str) -> str:
    status = os.stat(path)
    if status.st_size > _LARGE:
        return f"{name} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
    try:
        with open(path, "rb", buffering=0) as file:
            return f"{name} {hashlib.sha256(file.read()).hexdigest()}"
    except OSError:  # nobody who trains can read it either
        return f"{name} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
