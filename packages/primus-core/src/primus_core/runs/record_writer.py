"""The run directory on disk: made, and its `metadata.json` kept up to date from the first moment to the last."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from primus_core.contracts import schedulers
from primus_core.journal import record, summary
from primus_core.journal.record import Attempt, OtherRun, RunRecord, SchedulerUsed
from primus_core.plan.plan import METRICS, Plan
from primus_core.plan.secret_values import values_in
from primus_core.runs.snapshot import part_of
from primus_machine.errors import MachineError, RunDirectoryTaken
from primus_machine.facts import Facts
from primus_machine.files.access_lists import keep_to_owner
from primus_machine.files.atomic import FULL, OTHERS_WRITE, create
from primus_machine.files.lease import Lease
from primus_machine.secrets.redaction import redact

if TYPE_CHECKING:
    from primus_core.contracts.scheduler import Scheduler

__all__ = ["RecordWriter", "unwritable"]

_RESERVED_BYTES = 64 * 1024
_OTHER_WORKSPACE = "set `workspace:` to a writable folder"
_GOING = ("preparing", "started")


class RecordWriter:
    """One run's directory, as far as this node writes it: made, owned, its record kept."""

    def __init__(self, plan: Plan, facts: Facts) -> None:
        self.plan, self.facts = plan, facts
        self.secrets = values_in(plan, plan.environ(facts.host.environ))
        self.directory = plan.place.directory
        self.part = part_of(plan)
        # The outermost layer keeps the run's own; what it does not know, it finds in those of the nodes.
        self.own = f"nodes/{plan.distributed.node_rank}/" if plan.place.outer else self.part
        self.started = time.time()
        self.attempt = 0
        """Of the run's attempts, the one that this node joined; 0: nobody counts them."""
        self.attempts: list[Attempt] = []
        """The starts of the worker, those of earlier jobs of this run included."""
        self.kept: dict[str, Any] = {}
        """Fields of the record for all that is written from now on (`keep`)."""
        self.inside: Sequence[RunRecord] = ()
        """What the nodes inside have recorded, at the end."""
        self.submission = RunRecord()
        """What the run's record said before a job joined it."""
        self.status = ""
        """How it ended, once that is recorded."""
        self.ended_by_scheduler = False
        """It was interrupted for a reason of the scheduler's, such as a time limit: nobody asked for it."""
        self.lease: Lease | None = None
        """What makes this process the owner of the run, or of a node's part of it; a layer inside has none."""

    def make(self) -> None:
        """The directory, marked as being prepared. From here on, nothing that the run writes is for others to write to:
        what they can change is not believed later, and in a team's folder that would be every checkpoint.

        Raises:
            RunDirectoryTaken: it is there already, and is not ours to join.
            RequestError: it is another process's, which is alive.
            MachineError: it cannot be written.
        """
        try:
            os.makedirs(os.path.dirname(self.directory), exist_ok=True)
            os.umask(os.umask(OTHERS_WRITE) | OTHERS_WRITE)
            try:
                os.mkdir(self.directory)
                keep_to_owner(self.directory)
            except FileExistsError:
                if not self.plan.place.joined:
                    raise RunDirectoryTaken(self.directory) from None
            if not self.plan.place.outer:
                self._own()
            os.makedirs(f"{self.directory}/{self.part}logs", exist_ok=True)
            os.makedirs(f"{self.directory}/{self.own}", exist_ok=True)
            os.makedirs(f"{self.directory}/logs", exist_ok=True)
            if self.plan.place.joined:
                self._join()
            self.write(status="preparing")
            self._reserve()
        except OSError as error:
            raise unwritable(self.directory, error) from None

    def _reserve(self) -> None:
        """Keep space for the last words: they must be written on a disk that is full by then."""
        with suppress(FileNotFoundError):  # of an earlier attempt
            os.unlink(self._space)
        with open(self._space, "wb", opener=create) as file:
            file.write(b"reserved for metadata.json".ljust(_RESERVED_BYTES))

    @property
    def _space(self) -> str:
        return f"{self.directory}/{self.own}.reserved"

    def _own(self) -> None:
        environ = self.facts.host.environ
        self.lease = Lease.take(
            f"{self.directory}/{self.own}".rstrip("/"),
            self.facts.host,
            user=_user(environ),
            job={"restart": "0", **_numbers(environ)},
        )

    def look(self) -> None:
        """Show that the owner is alive. Called often while the run goes on."""
        if self.lease:
            self.lease.look()

    def release(self) -> None:
        """This process owns the run no more."""
        if self.lease:
            self.lease.release()

    def keep(self, **fields: Any) -> None:
        """Have these fields in the record from now on."""
        self.kept |= fields

    def begin_attempt(self) -> None:
        """Begin the next start of the worker."""
        self.attempts.append(Attempt(time.time()))

    def close_attempt(self, **known: Any) -> None:
        """Take in how the latest start of the worker ended."""
        self.attempts[-1] = replace(self.attempts[-1], **known)

    def _join(self) -> None:
        known = record.read(f"{self.directory}/{self.own}")
        self.submission = known if known.submitted else RunRecord()
        if self.plan.place.outer:
            self.attempt = len(record.read(self.directory).attempts)
        else:
            self.attempts = list(known.attempts)

    def is_current(self) -> bool:
        """Whether the attempt that this node joined still counts, as far as can be seen: whoever keeps the run's record
        may have begun another one, or may have ended the run, where no signal reaches.
        """
        known = record.read(self.directory) if self.plan.place.outer else RunRecord()
        return not known or (known.status in _GOING and len(known.attempts) == self.attempt)

    def write(self, **fields: Any) -> None:
        """Write the record with what is known of the run and these fields. That of a node in a later attempt is
        somebody else's, and so is that of a run whose lease is lost.
        """
        if self.plan.place.outer and len(record.read(self.directory).attempts) != self.attempt:
            return
        if self.lease and self.lease.is_lost():
            return
        known = self._known().joined("submission", [self.submission]).joined("nodes", self.inside)
        known = replace(known, **{**self.kept, **fields})
        record.write(f"{self.directory}/{self.own}", known, lambda text: redact(text, self.secrets))

    def _known(self) -> RunRecord:
        """What the plan and this process are."""
        plan, host, environ = self.plan, self.facts.host, self.facts.host.environ
        numbers = _numbers(environ)
        scheduler = _scheduler(environ)
        return RunRecord(
            run_id=plan.place.run_id,
            command=plan.command,
            task=plan.task,
            runtime=plan.runtime,
            framework=plan.framework,
            model=plan.model,
            gpu_model=plan.gpu_model,
            world_size=plan.distributed.world_size,
            primus_version=plan.primus_version,
            host=host.hostname(),
            user=_user(environ),
            cwd=self.facts.cwd,
            pid=os.getpid(),
            started=self.started,
            job_id=numbers.get("job_id", ""),  # `primus stop` and a signal's way to the ranks need them
            step_id=numbers.get("step_id", ""),
            node=numbers.get("node", ""),
            scheduler=SchedulerUsed(scheduler.name) if scheduler else None,
            attempts=tuple(self.attempts),
            continues=_run(plan.continues),
            started_by=_run(plan.started_by),
            parent=_run(plan.started_by or plan.parent),
        )

    def note(self, status: str = "started", **fields: Any) -> None:
        """The same while the run goes on; where it cannot be written, it does so without."""
        try:
            self.write(status=status, **fields)
        except OSError:
            pass

    def end(self, status: str, exit_code: int, **fields: Any) -> str:
        """Record how it ended, with the last step; why that could not be written, or nothing."""
        self.status = status
        rows = summary.read(f"{self.directory}/{METRICS}")
        last: dict[str, Any] = {"last_step": rows[-1]["step"], "last_loss": rows[-1]["loss"]} if rows else {}
        if not exit_code and (step := summary.ended_at(self.directory)):
            last["last_step"] = step
        known = {"status": status, "exit_code": exit_code, "ended": time.time(), **last, **fields}
        try:
            try:
                self.write(**known)
            except OSError as error:
                if error.errno not in FULL:
                    raise
                os.unlink(self._space)
                self.write(**known)
        except OSError as error:  # the run is over; what it came to must come back all the same
            return f"metadata.json could not be written: {error.strerror}"
        finally:
            with suppress(OSError):
                os.unlink(self._space)
        return ""


def unwritable(directory: str, error: OSError) -> MachineError:
    """The error for a run directory that cannot be made or filled."""
    return MachineError(
        f"the run directory {directory} cannot be written",
        why=f"{error.strerror}: {error.filename or directory}",
        fix="free space there, or set another `workspace:`" if error.errno in FULL else _OTHER_WORKSPACE,
    )


def _run(directory: str) -> OtherRun | None:
    """Another run, as the record names it."""
    return OtherRun(os.path.basename(directory), directory) if directory else None


def _numbers(environ: Mapping[str, str]) -> dict[str, str]:
    scheduler = _scheduler(environ)
    return dict(scheduler.numbers(environ)) if scheduler else {}


def _scheduler(environ: Mapping[str, str]) -> Scheduler | None:
    """The one whose job this process is in, in the shell of an allocation, too."""
    return next((one for one in schedulers.all_of_them() if one.numbers(environ).get("job_id")), None)


def _user(environ: Mapping[str, str]) -> str:
    """The name of the account; where nothing knows one, as in many containers, its number."""
    import pwd  # only a run that starts needs it

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return environ.get("USER") or environ.get("LOGNAME") or str(os.getuid())
