"""Trains: MaxText's own loop, with the resolved settings in the run directory.

Started on every node as `python -m primus_core.programs.rank primus_maxtext.worker`.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from primus_core import get_logger
from primus_core.errors import MachineError
from primus_core.journal.events import checkpoint_saved, saved_steps
from primus_maxtext.checkpoints import (
    FOLDER,
    CheckpointWatch,
    carry_over,
    check_shared,
    set_aside,
    start_before,
    steps,
    watch_loading,
)
from primus_train.failed_loads import FailedLoads
from primus_train.kit import worker
from primus_train.kit.end_request import TERMINATED, interrupt_as_terminate
from primus_train.kit.made_before import made_before
from primus_train.kit.outside_writers import OutsideWriters
from primus_train.kit.recorder import Recorder
from primus_train.profiling import TRACES

__all__ = ["main", "words"]


def main() -> None:
    """Read the settings, join the other nodes, train."""
    resolved = worker.resolved()
    saves = resolved["settings"].get("enable_checkpointing", True)
    if saves and worker.rank() == 0:
        _make_folder(resolved["continue_from"], FailedLoads.of_run(worker.run_directory()))
    _join(resolved["settings"].get("jax_distributed_initialization_timeout", 300))
    interrupt_as_terminate()
    _check_device(resolved["device"])
    if saves and int(os.environ["WORLD_SIZE"]) > 1:
        check_shared(_folder())
    _quieten()
    found = steps(_folder())
    if made_before(found[-1] + 1 if found and saves else None, resolved["settings"]["steps"], _folder()):
        return
    told = resolved["settings"].get("enable_tensorboard")
    # MaxText counts from 0: the step before the next one.
    writers = OutsideWriters("tensorboardX" if told else "", found[-1] if found else None)
    try:
        _train(resolved)
    except Exception as error:  # whatever it is, the others wait for this process
        if int(os.environ["WORLD_SIZE"]) > 1:
            _leave(getattr(error, "exit_code", 1))
        raise
    finally:
        writers.flush()


def _leave(code: int) -> None:
    """End without JAX's meeting at the end: the others wait in a collective for this process, and it would wait five
    minutes for them. What is registered last comes first.
    """

    def at_once() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    atexit.register(at_once)


def _folder() -> str:
    return str(worker.run_directory() / FOLDER)


def _make_folder(source: str, failed: FailedLoads) -> None:
    """The checkpoint of an earlier run becomes this one's, once: a further attempt has its own."""
    folder = _folder()
    os.makedirs(folder, exist_ok=True)
    source, passed = start_before(folder, source, failed)
    passed |= set_aside(folder, failed)
    if source and not steps(folder):
        carry_over(source, os.path.join(folder, os.path.basename(source)))
    found = steps(folder)
    for step, what in passed.items():
        resumes_from = found[-1] + 1 if found else None
        resumes = f"resuming from step {resumes_from}" if found else "it is skipped"
        message = f"the checkpoint of step {step + 1} {what}; {resumes}"
        get_logger().warning("checkpoint_passed_over", message=message, step=step + 1, resumes_from=resumes_from)
    if found:
        message = f"continues from step {found[-1] + 1} in {folder}"
        get_logger().info("continues", message=message, step=found[-1] + 1, path=folder)


def _loaded(resolved: Mapping[str, Any]) -> list[str]:
    """The checkpoint that MaxText will load, and the one that it was carried over from."""
    folder, settings, source = _folder(), resolved["settings"], resolved["continue_from"]
    if found := steps(folder):
        own = os.path.join(folder, str(found[-1]))
        theirs = os.path.join(os.path.dirname(source), os.path.basename(own))
        was_carried_over = source and found[-1] <= int(os.path.basename(source)) and os.path.isdir(theirs)
        return [own, theirs] if was_carried_over else [own]
    named = settings.get("load_parameters_path") or settings.get("load_full_state_path")
    return [named] if named else []


def _join(timeout_s: int) -> None:
    """Meet the processes of the other nodes. MaxText would do so, and take its own view of the visible devices.

    A process that is alone meets itself: JAX tells of a signal to end only where its processes have met.
    """
    import jax

    environ = os.environ
    address = environ.get("JAX_COORDINATOR_IP") or "127.0.0.1"
    port = environ.get("JAX_COORDINATOR_PORT") or environ["MASTER_PORT"]
    if worker.rank() == 0:
        _check_free(int(port))
    jax.distributed.initialize(
        f"{address}:{port}",
        num_processes=int(environ["WORLD_SIZE"]),
        process_id=worker.rank(),
        initialization_timeout=timeout_s,
    )


def _check_free(port: int) -> None:
    """JAX would listen beside another run that uses the port, and each get processes of the other."""
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        raise MachineError(
            f"node 0 cannot listen on port {port}: {os.strerror(error.errno or 0)}",
            why="the nodes meet there",
            fix="set MASTER_PORT to a port that is free, the same on all nodes",
        ) from None


def _check_device(planned: str) -> None:
    import jax

    if planned == "gpu" and jax.default_backend() != "gpu":
        raise MachineError(
            "the plan uses GPUs, but JAX finds none",
            why=f"jax {jax.__version__} found only: {jax.default_backend()}",
            fix="install JAX's plugin for this GPU (jax[cuda12], or AMD's jax-rocm7-plugin and jax-rocm7-pjrt), "
            "or set CUDA_VISIBLE_DEVICES= to train on the CPU",
        )


def _quieten() -> None:
    """Show what MaxText says, and of its libraries what they warn of."""
    import absl.logging

    import maxtext

    home = os.path.join(os.path.dirname(os.path.abspath(maxtext.__file__)), "")

    def matters(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING or os.path.abspath(record.pathname).startswith(home)

    absl.logging.use_absl_handler()
    absl.logging.set_verbosity("info")
    absl.logging.get_absl_handler().addFilter(matters)


def _train(resolved: Mapping[str, Any]) -> None:
    from absl import flags

    from primus_maxtext import token_ids
    from primus_maxtext.loop import Loop
    from primus_maxtext.patches import apply_all
    from primus_maxtext.step_metrics import StepRecorder
    from primus_train.kit import patches

    rank, folder = worker.rank(), str(worker.run_directory())
    if resolved["settings"].get("profiler") == "xplane":
        _lead_to_traces(folder)
    line = patches.summary(apply_all(), "primus_maxtext.patches")
    if line and rank == 0:
        get_logger().info("patched", message=line)
    carried_over = os.path.basename(resolved["continue_from"])
    told = saved_steps(folder) | ({int(carried_over) + 1} if carried_over else set())
    watch = CheckpointWatch(
        os.path.join(folder, FOLDER), lambda step, path: checkpoint_saved(folder, step=step, path=path), told
    )
    recorder = Recorder.of(resolved)
    recorder.saves = resolved["settings"].get("enable_checkpointing", True)
    if rank == 0:
        watch.keep_looking()
    steps = StepRecorder(recorder)
    steps.install()
    token_ids.check_first_batches()
    if resolved.get("samples"):  # a run of an earlier version has none
        from primus_maxtext import indexed_input

        indexed_input.install(resolved["samples"])
    flags.FLAGS.mark_as_parsed()  # those of grain's workers: MaxText's own command line would do it
    watch_loading(_loaded(resolved), FailedLoads.of_run(worker.run_directory()))
    loop = Loop(steps, resolved["settings"])
    loop.run(words(resolved["settings"]))
    if rank == 0:
        watch.look()
    recorder.close(0 if loop.terminated else resolved["settings"]["steps"])
    if loop.terminated:
        sys.exit(TERMINATED)


def _lead_to_traces(folder: str) -> None:
    """MaxText writes traces where TensorBoard looks for them: a link there makes that the run's `traces`."""
    place = os.path.join(folder, "tensorboard", "plugins", "profile")
    os.makedirs(os.path.join(folder, TRACES), exist_ok=True)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with suppress(FileExistsError):  # of an earlier attempt, or by another node
        os.symlink(os.path.join("..", "..", TRACES), place)


def words(settings: Mapping[str, Any]) -> list[str]:
    """Settings as MaxText's command line has them: these alone win over a named model's."""
    from maxtext.utils.globals import MAXTEXT_CONFIGS_DIR

    base = os.path.join(MAXTEXT_CONFIGS_DIR, "base.yml")
    return ["primus", base, *(f"{name}={_word(value)}" for name, value in settings.items())]


def _word(value: Any) -> str:
    """JSON is YAML; `${` would be filled in by omegaconf."""
    return json.dumps(value).replace("${", "\\\\${")


if __name__ == "__main__":
    main()
