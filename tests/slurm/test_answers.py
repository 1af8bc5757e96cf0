"""What `scontrol show job` answers in the versions of Slurm since 20.02, written after its source
(`src/api/job_info.c`, later `src/scontrol/info_job.c`, of the branches slurm-20.02 to slurm-25.11).
"""

from __future__ import annotations

import pytest
from tests.slurm.test_planning import SPOOFS

from primus_slurm.queries import fields

HEAD = """\
JobId=7 {array}JobName={name}
{sluid}   UserId=me(1000) GroupId=me(1000) MCS_label=N/A
   Priority=4294901757 Nice=0 Account=(null) QOS=normal WCKey=*{name}
   JobState=RUNNING Reason=None {failed}Dependency=(null)
   Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=0:0
{derived}   RunTime=00:00:10 TimeLimit=UNLIMITED TimeMin=N/A
   SubmitTime=1795272570 EligibleTime=1795272570
   AccrueTime=1795272570
   StartTime=1795272571 EndTime=Unknown Deadline=N/A
"""
TAIL = """\
   SuspendTime=None SecsPreSuspend=0 LastSchedEval=1795272571{scheduler}
   Partition=main AllocNode:Sid=login:1
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=n[1-2]
   BatchHost=n1
   NumNodes=2 NumCPUs=2 NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   {tres}
   Socks/Node=* NtasksPerN:B:S:C=1:0:*:* CoreSpec=*
   MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0
   Features=(null) DelayBoot=00:00:00
   OverSubscribe=OK Contiguous=0 Licenses=(null) {licenses}Network=(null)
   Command={name}/submit.sh
{line}   WorkDir={name}
   AdminComment={name}{blank}
   Comment={name}{blank}
{extra}   StdErr={name}/log.txt
   StdIn=/dev/null
   StdOut={name}/log.txt
   {power}
"""
EACH = {"array": "", "sluid": "", "failed": "", "derived": "", "scheduler": "", "licenses": "", "line": "", "extra": "",
        "blank": " ", "power": "Power=", "tres": "TRES=cpu=2,node=2,billing=2"}  # fmt: skip
NEWER = {"scheduler": " Scheduler=Main", "tres": "ReqTRES=cpu=2,node=2\n   AllocTRES=cpu=2,node=2,billing=2",
         "failed": "FailedNode=n9 ", "power": ""}  # fmt: skip
VERSIONS = {
    "20.02": {**EACH, "power": "Power=\n   MailUser=(null) MailType=NONE"},
    "22.05": {**EACH, "scheduler": " Scheduler=Backfill:*"},
    "24.11": {**EACH, **NEWER, "extra": "   Extra={name} \n"},
    "25.11": {
        **EACH,
        **NEWER,
        "blank": "",
        "licenses": "LicensesAlloc=(null) ",
        "line": "   SubmitLine=sbatch {name}/submit.sh\n",
        "sluid": "   SLUID=sABC\n",
        "derived": "   DerivedExitCode=0:9\n",
        "extra": "   Extra={name}\n",
    },
}


def answer(version: str, name: str) -> str:
    """What it says of job 7."""
    form = {key: text.replace("{name}", name) for key, text in VERSIONS[version].items()}
    return (HEAD + TAIL).format(**form, name=name)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["/home/me/run", *SPOOFS])
def test_every_version_is_understood_whatever_stands_in_names_comments_and_folders(version: str, name: str) -> None:
    assert fields(answer(version, name), "7") == {
        "state": "RUNNING", "reason": "None", "submitted": "1795272570", "command": f"{name}/submit.sh",
        "log": f"{name}/log.txt", "exit_code": "0:0", "restarts": "2",
    }  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_the_other_jobs_of_an_array_or_a_heterogeneous_job_are_others(version: str) -> None:
    first = answer(version, "/a").replace("JobId=7 ", "JobId=7 HetJobId=7 HetJobOffset=0 ")
    other = first.replace("JobId=7 ", "JobId=8 ", 1).replace("RUNNING", "PENDING").replace("/a", "/b")
    for text in (f"{first}\n{other}", f"{other}\n{first}"):
        assert (fields(text, "7")["state"], fields(text, "7")["command"]) == ("RUNNING", "/a/submit.sh")
        assert (fields(text, "8")["state"], fields(text, "8")["command"]) == ("PENDING", "/b/submit.sh")
