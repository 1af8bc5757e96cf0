"""What is submitted is what runs: a job reads the copies of the files from which it was planned."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run
from tests.lab import countdown

FAKE = "#!/bin/sh\necho 7\n"
"""An `sbatch` that takes everything."""


class Job:
    """A project, what was submitted in it, and what its job would do."""

    def __init__(self, primus: Run, folder: Path) -> None:
        self.primus, self.folder = primus, folder
        self.home = folder / "home"
        self.home.mkdir()
        programs = folder / "bin"
        programs.mkdir()
        (programs / "sbatch").write_text(FAKE, encoding="utf-8")
        (programs / "sbatch").chmod(0o755)
        self.environ = {
            "PATH": f"{programs}:/usr/bin:/bin",
            "HOME": str(self.home),
            "PYTHONPATH": countdown.install(folder / "site"),
        }
        self.write("exp.yaml", countdown.EXPERIMENT)

    def write(self, path: str, text: str) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text, encoding="utf-8")

    def submit(self, *inner: str, flags: tuple[str, ...] = (), **variables: str) -> None:
        """Submit it, with `inner` as what runs inside."""
        words = inner or ("train", "pretrain", "--config", "exp.yaml")
        done = self.primus("slurm", *flags, "sbatch", "--", *words, cwd=self.folder, env={**self.environ, **variables})
        assert done.returncode == 0, done.stderr
        self.run = (self.folder / "output").glob("count_*").__next__()

    def script(self) -> tuple[dict[str, str], list[str]]:
        """The variables of the job script, and the command line of its nodes."""
        lines = (self.run / "submit.sh").read_text(encoding="utf-8").splitlines()
        exports = [shlex.split(line)[1].partition("=") for line in lines if line.startswith("export ")]
        [command] = [shlex.split(line) for line in lines if line.startswith("exec ")]
        return {name: value for name, _, value in exports}, command[command.index("srun") + 2 :]

    def planned(self, **variables: str) -> dict[str, Any]:
        """What a node plans when the job has begun."""
        exported, words = self.script()
        runtime, *rest = words
        environ = {**self.environ, **exported, **variables}
        done = self.primus(runtime, "--dry-run", "--json", *rest, cwd=self.folder, env=environ)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def hooks(self) -> list[str]:
        return [step["name"] for step in self.planned()["steps"] if step["script"]]


@pytest.fixture
def job(primus: Run, tmp_path: Path) -> Job:
    """A project with an experiment for a small backend."""
    return Job(primus, tmp_path)


def test_a_job_reads_the_settings_as_they_were_submitted(job: Job) -> None:
    job.write("site/far.yaml", "modules: {pre_trainer: {overrides: {loss.kind: steep}}}\n")
    job.write("models/own.yaml", "name: own\n")
    text = countdown.EXPERIMENT.replace("{name: any}", "./models/own.yaml")
    job.write("exp.yaml", f"extends: [{job.folder}/site/far.yaml, ./near.yaml]\n{text}")
    job.write("near.yaml", "modules: {pre_trainer: {overrides: {steps: 9}}}\n")
    job.submit()
    for path in ("exp.yaml", "near.yaml", "site/far.yaml", "models/own.yaml"):
        (job.folder / path).unlink()
    assert job.planned()["config"] == {"steps": 2, "loss.start": 5.0, "loss.kind": "steep"}


def test_variables_of_the_settings_have_their_values_of_the_submission(job: Job) -> None:
    job.write("exp.yaml", countdown.EXPERIMENT.replace("loss: {start: 5.0}", "loss.start: ${START:5.0}"))
    job.submit(START="6.0")
    assert job.planned()["config"]["loss.start"] == 6.0


@pytest.mark.full
def test_a_job_runs_the_hooks_and_patches_of_the_submission_and_no_others(job: Job) -> None:
    for path in ("hooks/01_own.sh", "more/02_more.sh", "patch.sh"):
        job.write(path, "true\n")
    job.write("hooks/library.txt", "x=1\n")
    job.submit("direct", "--hooks", "more", "--patch", "patch.sh", "--", "train", "pretrain", "--config", "exp.yaml")
    for path in ("hooks/01_own.sh", "hooks/library.txt", "patch.sh"):
        (job.folder / path).unlink()
    job.write("hooks/09_late.sh", "exit 9\n")
    job.write("more/train/09_late.sh", "exit 9\n")
    assert job.hooks() == ["hook hooks/01_own.sh", "hook more/02_more.sh", "patch patch.sh"]
    scripts = [Path(step["script"]) for step in job.planned()["steps"] if step["script"]]
    assert all(script.is_relative_to(job.run) for script in scripts)
    assert (scripts[0].parent / "library.txt").read_text(encoding="utf-8") == "x=1\n", "the hook may read it"


def test_a_folder_of_hooks_that_was_empty_stays_empty(job: Job) -> None:
    (job.folder / "hooks").mkdir()
    job.submit()
    job.write("hooks/01_late.sh", "exit 9\n")
    assert job.hooks() == []


@pytest.mark.full
def test_a_job_has_the_site_config_of_the_submission(job: Job) -> None:
    job.write("primus.yaml", "direct: {grace_period: 3}\nplugins: [./more.py]\nhooks: {folders: [./early]}\n")
    job.write("more.py", "from primus_core import hookimpl\n\n\n@hookimpl\ndef before_launch(run):\n    pass\n")
    job.write("early/01_early.sh", "true\n")
    job.submit()
    (job.folder / "primus.yaml").unlink()
    (job.folder / "more.py").unlink()
    (job.home / ".primus.yaml").write_text("direct: {hang_timeout: 1}\n", encoding="utf-8")
    planned = job.planned()
    assert (planned["grace_period_s"], planned["hang_timeout_s"]) == (3, 0)
    assert Path(planned["hook_plugins"][0][1]).is_relative_to(job.run)
    assert job.hooks() == ["hook early/01_early.sh"]


def test_files_of_options_are_read_as_they_were_submitted(job: Job) -> None:
    job.write("own.env", "COLOUR=red\n")
    words = ("direct", "--env", "own.env", "--", "train", "pretrain", "--config", "exp.yaml")
    job.submit(*words)
    job.write("own.env", "COLOUR=blue\n")
    found = {variable["name"]: variable["value"] for variable in job.planned()["environment"]}
    assert found["COLOUR"] == "red"


def test_a_file_with_a_secret_is_not_copied(job: Job) -> None:
    job.write("own.env", "WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567\n")
    job.submit("direct", "--env", "own.env", "--", "train", "pretrain", "--config", "exp.yaml")
    texts = [p.read_text(encoding="utf-8") for p in job.run.rglob("*") if p.is_file() and not p.is_symlink()]
    assert not [text for text in texts if "0123456789abcdef" in text]
    known = json.loads((job.run / "submitted/submission.json").read_text(encoding="utf-8"))
    assert known["files"][str(job.folder / "own.env")]["copied"] is False


def test_a_hook_that_holds_a_secret_runs_in_the_job_all_the_same(job: Job) -> None:
    job.write("hooks/01_own.sh", "export WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567; true\n")
    job.write("hooks/02_more.sh", "true\n")
    job.submit()
    assert job.hooks() == ["hook hooks/01_own.sh", "hook hooks/02_more.sh"]
    texts = [p.read_text(encoding="utf-8") for p in job.run.rglob("*") if p.is_file() and not p.is_symlink()]
    assert not [text for text in texts if "0123456789abcdef" in text]


def test_a_site_config_that_holds_a_secret_holds_in_the_job(job: Job) -> None:
    job.write(
        "primus.yaml", "direct: {grace_period: 3, env: [WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567]}\n"
    )
    job.submit()
    assert job.planned()["grace_period_s"] == 3


def test_files_beside_a_hook_keep_their_modes_and_private_ones_are_only_linked(job: Job) -> None:
    for name in ("01_own.sh", "tool", "key"):
        job.write(f"hooks/{name}", "true\n")
    (job.folder / "hooks/tool").chmod(0o755)
    (job.folder / "hooks/key").chmod(0o600)
    job.submit()
    copies = Path(next(step["script"] for step in job.planned()["steps"] if step["script"])).parent
    assert (copies / "tool").stat().st_mode & 0o777 == 0o700, "for its owner alone, who may run it as before"
    assert (copies / "key").is_symlink()


def test_a_path_through_a_link_means_the_same_in_the_job(job: Job) -> None:
    job.write("shared/team/configs/exp.yaml", f"extends: ../base.yaml\n{countdown.EXPERIMENT}")
    job.write("shared/team/base.yaml", "modules: {pre_trainer: {overrides: {loss.kind: steep}}}\n")
    job.write("base.yaml", "modules: {pre_trainer: {overrides: {loss.kind: linear}}}\n")
    (job.folder / "configs").symlink_to("shared/team/configs")
    job.submit("train", "pretrain", "--config", "configs/exp.yaml")
    (job.folder / "configs").unlink()
    assert job.planned()["config"]["loss.kind"] == "steep"


@pytest.mark.full
def test_the_site_config_of_a_variable_reaches_the_job(job: Job) -> None:
    job.write("sub/site.yaml", "direct: {grace_period: 3}\n")
    job.submit(PRIMUS_CONFIG="sub/site.yaml")
    assert job.planned()["grace_period_s"] == 3


@pytest.mark.full
def test_who_stands_elsewhere_and_has_the_variable_of_another_run_reads_no_copies(job: Job, primus: Run) -> None:
    job.submit()
    job.write("exp.yaml", countdown.EXPERIMENT.replace("5.0", "4.0"))
    environ = {**job.environ, "PRIMUS_SUBMITTED": f"{job.run}/submitted"}
    words = ("direct", "--dry-run", "--json", "--", "train", "pretrain", "--config", "exp.yaml")
    done = primus(*words, cwd=job.folder, env=environ)
    assert json.loads(done.stdout)["config"]["loss.start"] == 4.0


def test_a_job_whose_copies_are_gone_says_so(job: Job, primus: Run) -> None:
    job.submit()
    (job.run / "submitted/submission.json").unlink()
    exported, words = job.script()
    done = primus(*words, cwd=job.folder, env={**job.environ, **exported})
    assert done.returncode == 3
    assert "does not contain the submitted files" in done.stderr
    assert "submit the run again" in done.stderr
    known = json.loads((job.run / "metadata.json").read_text(encoding="utf-8"))
    assert (known["status"], known["exit_code"]) == ("failed", 3)
    assert "does not contain the submitted files" in known["first_failure"]["what"]


@pytest.mark.full
def test_what_lies_around_a_script_is_found_in_the_job(job: Job) -> None:
    job.write("tools/lib.sh", "x=1\n")
    job.write("hooks/train/01_own.sh", 'source "$(dirname "$0")/../../tools/lib.sh"\n')
    job.write("site_patches/fix.sh", 'source "$(dirname "$0")/words.sh"\n')
    job.write("site_patches/words.sh", "true\n")
    job.write("hooks/preflight/notes.txt", "a\n")
    (job.folder / "hooks/pretrain").mkdir()
    job.submit("direct", "--patch", "site_patches/fix.sh", "--", "train", "pretrain", "--config", "exp.yaml")
    job.write("hooks/pretrain/09_late.sh", "exit 9\n")
    job.write("hooks/train/pretrain/09_late.sh", "exit 9\n")
    hook, patch = [Path(step["script"]) for step in job.planned()["steps"] if step["script"]]
    assert (hook.parent / "../../tools/lib.sh").read_text(encoding="utf-8") == "x=1\n"
    assert (patch.parent / "words.sh").is_file()
    assert hook.is_relative_to(job.run)
    assert patch.is_relative_to(job.run)


@pytest.mark.full
def test_a_file_that_was_reached_through_a_link_is_read_as_it_was_submitted(job: Job) -> None:
    job.write("real/base.yaml", "modules: {pre_trainer: {overrides: {loss.kind: steep}}}\n")
    job.write("sub/exp.yaml", f"extends: ../link/base.yaml\n{countdown.EXPERIMENT}")
    (job.folder / "link").symlink_to("real")
    job.submit("train", "pretrain", "--config", "./sub/exp.yaml")
    (job.folder / "link").unlink()
    (job.folder / "real/base.yaml").unlink()
    assert job.planned()["config"]["loss.kind"] == "steep"


@pytest.mark.full
def test_a_copy_that_is_gone_is_not_replaced_by_the_file_as_it_is_now(job: Job, primus: Run) -> None:
    job.submit()
    copy = job.run / f"submitted/files{job.folder}/exp.yaml"
    copy.unlink()
    exported, words = job.script()
    done = primus(*words, cwd=job.folder, env={**job.environ, **exported})
    assert (done.returncode, done.stdout) == (3, "")
    assert f"the submitted copy of {job.folder}/exp.yaml was removed" in done.stderr


@pytest.mark.full
def test_the_record_says_why_a_job_could_not_be_planned(job: Job, primus: Run) -> None:
    job.submit()
    text = countdown.EXPERIMENT.replace("steps: 2", "stesp: 2")
    (job.run / f"submitted/files{job.folder}/exp.yaml").write_text(text, encoding="utf-8")
    exported, words = job.script()
    done = primus("slurm", "srun", "--", *words, cwd=job.folder, env={**job.environ, **exported})
    assert done.returncode == 2
    assert f"error: {job.folder}/exp.yaml:8: countdown has no setting 'stesp'" in done.stderr, "its own name"
    known = json.loads((job.run / "metadata.json").read_text(encoding="utf-8"))
    assert (known["status"], known["exit_code"]) == ("failed", 2)
    assert "stesp" in known["first_failure"]["what"]


@pytest.mark.full
def test_a_copy_that_was_edited_is_not_run(job: Job, primus: Run) -> None:
    job.write("hooks/01_own.sh", "true\n")
    job.submit()
    (job.run / f"submitted/files{job.folder}/hooks/01_own.sh").write_text("false\n", encoding="utf-8")
    (job.folder / "bin/srun").symlink_to("sbatch")
    exported, words = job.script()
    done = primus("slurm", "srun", "--", *words, cwd=job.folder, env={**job.environ, **exported})
    assert done.returncode == 3
    assert f"the submitted copy of {job.folder}/hooks/01_own.sh was changed" in done.stderr
    known = json.loads((job.run / "metadata.json").read_text(encoding="utf-8"))
    assert (known["status"], known["exit_code"]) == ("failed", 3)
