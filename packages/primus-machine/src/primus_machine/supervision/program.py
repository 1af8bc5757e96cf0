"""A program that is supervised, what its supervisor has to know, and how it ended."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from primus_machine.files.atomic import open_to_append
from primus_machine.own_process.signals import Signals
from primus_machine.secrets.masks import Mask

__all__ = ["Ended", "Program", "Watch"]


class Program(Protocol):
    """What can be started: attributes of any object will do."""

    @property
    def argv(self) -> Sequence[str]:
        """Its words; the first is the program."""

    @property
    def cwd(self) -> str:
        """Its folder."""

    @property
    def ranks(self) -> int:
        """How many processes write to the pipes of ranks; 0: it is a plain process."""

    @property
    def first_rank(self) -> int:
        """The number of the first of them."""

    @property
    def script(self) -> str:
        """The file that it runs, where a person wrote it: what it leaves running is named."""

    @property
    def timeout_s(self) -> float:
        """So long it may take; 0: as long as it takes."""

    @property
    def cleanup(self) -> Sequence[str]:
        """A command that takes away what it leaves where no signal reaches."""

    @property
    def stop(self) -> Sequence[str]:
        """A command that asks for its end, where a signal would not be passed on."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a step ended: an exit code as a shell gives it (128+n for signal n), or why it could not start."""

    exit_code: int
    not_started: str = ""
    signal: int = 0
    """The signal that the person or scheduler sent, if any."""
    dropped: int = 0
    """Bytes of log text that could not be written: the disk is full, or too slow."""
    timed_out: bool = False
    """It took longer than its step allows, and was ended for it."""
    silent_s: float = 0.0
    """It printed nothing for so long that it was ended for it, in seconds; 0: it was not."""
    stopped: bool = False
    """Somebody asked for its end (`Watch.stops`)."""
    left: tuple[str, ...] = ()
    """Of a script: what it left running, which was ended with it."""
    records: tuple[str, ...] = ()
    """Why ranks failed, as they say themselves."""
    cut_short: bool = False
    """Its ranks could not continue (`Watch.cannot_continue`), and were ended for it."""
    cut_at: float = 0.0
    """When Primus began to end it; 0: it ended by itself, or by the signal."""
    killed: bool = False
    """It did not end within the grace period."""

    @property
    def went_well(self) -> bool:
        """Whether it ended by itself, and none of its ranks says that it failed."""
        return not (self.exit_code or self.signal or self.silent_s or self.records or self.not_started)


@dataclass(slots=True)
class Watch:
    """What the supervisor needs: where the logs go, what to hide, whom to call."""

    log_dir: str
    launch_log: str
    """What plain processes and the launcher print."""
    mask: Mask
    signals: Signals
    grace_s: float
    silence_s: float = 0.0
    """A process that says nothing for so long is taken to hang, and ended; 0: it may be silent."""
    start_silence_s: float = 0.0
    """The same before the first step."""
    progress: str = ""
    """A file with its steps, in which another node may say something for it."""
    metrics_rank: int = 0
    log_file: str = ""
    log_limit: int = 0
    """Bytes that a rank's log, and `log_file`, may have; 0: as many as come."""
    show_launcher: bool = False
    """Also show the launcher's own text (torchrun's) on the console."""
    pass_through: bool = False
    """What the process prints is the console's: a Primus inside has ordered it already."""
    on_signal: Callable[[int], None] = lambda _: None
    on_line: Callable[[bytes], None] | None = None
    """Gets each line of a plain process's stdout, unmasked: scripts speak by lines."""
    poll: Callable[[], None] = lambda: None
    """Called several times a second."""
    stops: Callable[[], bool] = lambda: False
    """Whether what runs is to be ended gently. Called as often."""
    gives_up: Callable[[], bool] = lambda: False
    """Whether waiting any longer is useless: what runs is killed then. Called as often."""
    may_end_hung: Callable[[float], bool] = lambda _: True
    """Whether ranks that were silent for so long may be ended; somebody may look at them first. Called as often."""
    cannot_continue: Callable[[], bool] = lambda: False
    """Whether the ranks are to be ended, since some have failed or left and the others wait. Called as often."""
    pids: Callable[[], Mapping[int, int]] = dict
    """The processes of the ranks that have started, by rank: to be asked, while the step runs."""
    ends: Callable[[], Mapping[int, bool]] = dict
    """The ranks that have said that they end; whether each has failed. To be asked as `pids`."""
    pending: Callable[[], frozenset[int]] = frozenset
    """The ranks with an exception that waits for a block to end. To be asked as `pids`."""
    silent_s: Callable[[], float] = lambda: 0.0
    """For how long nothing has been printed. To be asked as `pids`."""
    _files: dict[str, int] = field(default_factory=dict)

    def file(self, name: str) -> int:
        """The log file of that name, opened once."""
        if name not in self._files:
            path = name if os.path.isabs(name) else f"{self.log_dir}/{name}"
            try:
                self._files[name] = open_to_append(path)
            except OSError:  # no log is better than no run
                self._files[name] = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        return self._files[name]

    def close(self) -> None:
        """Close the log files."""
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()
