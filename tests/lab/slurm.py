"""A real Slurm cluster of several nodes on this machine, for tests: munged, slurmctld, and a slurmd for each node.

    python -m tests.lab.slurm 2 -- srun -N 2 hostname

Each node has network, process, host-name and mount namespaces of its own, the clients are on a host `login`, and
nothing listens on the machine itself. Needs root and Debian's packages slurm-wlm, munge and iproute2.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.lab.cleanup import Cleanup

__all__ = ["Cluster", "missing", "wait_until"]

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "ip", "tc", "nsenter", "unshare")
CLIENTS = ("srun", "sbatch", "salloc", "squeue", "sinfo", "scontrol", "scancel")
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
LOGIN = "10.77.0.254"
ROOT = Path(__file__).resolve().parent.parent.parent
CLEAR = "--clear"
"""With a folder: take down the cluster that it belongs to."""
PATIENCE_S = 240
"""For what is sure to come: on a busy machine, that two nodes start ranks takes half a minute."""

CONF = """\
ClusterName=lab
SlurmctldHost=login({login})
SlurmctldPort=26817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
# Only on the namespaces' own addresses, never on all.
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
MailProg=/bin/true
# What needs neither cgroups nor a data base.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
# A test has no patience.
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
SlurmctldTimeout=10
SlurmdTimeout=5
MessageTimeout=5
KillWait=20
InactiveLimit=0
MinJobAge=600
ReturnToService=2
{nodes}
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=lab Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=other Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=9
"""

ON_LOGIN = """\
#!/bin/bash
# Runs a command as on the login node. `exec` all the way: signals and status are the command's own.
export SLURM_CONF={folder}/slurm.conf
[ -n "${{LAB_INSIDE:-}}" ] && exec "$@"
export LAB_INSIDE=1
exec nsenter --net=/run/netns/{tag}-login unshare --uts --mount \\
  sh -c 'hostname login; mount --bind {folder}/hosts /etc/hosts; exec "$0" "$@"' "$@"
"""

NODE = """\
hostname {name}
mount --bind {folder}/hosts /etc/hosts
slurmd -D -N {name} -f {folder}/slurm.conf & daemon=$!
while true; do wait $daemon; sleep 600 & daemon=$!; done
"""
"""The first process of a node: it reaps orphans, and with it the whole node ends, but not with its slurmd."""


def missing() -> str:
    """Why there can be no cluster here; empty: there can."""
    if os.geteuid():
        return "a Slurm cluster needs root"
    lacking = [name for name in PROGRAMS if not shutil.which(name, path=PATH)]
    if lacking:
        return f"a Slurm cluster needs {', '.join(lacking)}: apt-get install slurm-wlm munge iproute2"
    tag = f"probe{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", tag], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", tag], capture_output=True, check=False)
    return f"a Slurm cluster needs network namespaces: {made.stderr.strip()}" if made.returncode else ""


class Cluster:
    """Nodes node1, node2, ... on partitions lab (default) and other, and urgent, which preempts."""

    def __init__(self, nodes: int, *, cpus: int = 16) -> None:
        self.nodes, self.cpus = nodes, cpus
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-lab-"))
        self.tag = self.folder.name  # of its network namespaces: nobody else has it
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._cleanup = Cleanup(
            "env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.lab.slurm", CLEAR, str(self.folder)
        )

    @property
    def environ(self) -> dict[str, str]:
        """What finds the cluster's commands. PATH is that of this process, behind them."""
        return {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "SLURM_CONF": f"{self.folder}/slurm.conf"}

    def run(self, *words: str, timeout: float = 60, check: bool = True) -> str:
        """A command's output, as on the login node."""
        environ = {**os.environ, **self.environ}
        done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=timeout, check=False)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout

    def job(self, number: str) -> dict[str, str]:
        """What `scontrol show job` says."""
        words = self.run("scontrol", "--oneliner", "show", "job", number).split()
        return dict(word.partition("=")[::2] for word in words if "=" in word)

    def wait(self, number: str) -> dict[str, str]:
        """Until a job is over."""
        over = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"}
        try:
            wait_until(lambda: self.job(number)["JobState"] in over)
        except TimeoutError as error:
            error.add_note(self.run("scontrol", "show", "job", number) + self.run("scontrol", "show", "nodes"))
            raise
        return self.job(number)

    def jobs(self) -> list[str]:
        """The numbers of the jobs that wait or run."""
        return self.run("squeue", "--noheader", "--format=%i").split()

    @property
    def small_disk(self) -> Path:
        """A file system of 16 MiB that all nodes see, to be filled."""
        return self.folder / "disk"

    def start(self) -> Cluster:
        """Bring it up."""
        try:
            self._write()
            self.small_disk.mkdir()
            size = ["-o", "size=16m,mode=777", "tmpfs", str(self.small_disk)]
            subprocess.run(["mount", "-t", "tmpfs", *size], check=True, capture_output=True)
            self._connect()
            self._daemon("munged", ["munged", "--foreground", "--force", "--num-threads=2", *self._munge_files()])
            wait_until((self.folder / "munge.sock").exists)
            self._daemon("slurmctld", [f"{self.folder}/bin/on-login", "slurmctld", "-D", "-i", "-f", self._conf])
            for number in range(1, self.nodes + 1):
                self.start_node(number)
            wait_until(lambda: self.idle() == self.nodes)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Take it down, with all that runs on it."""
        self._cleanup.run()
        for daemon in self.daemons.values():
            daemon.wait()

    def start_node(self, number: int) -> None:
        """Start a node, at first or after a crash."""
        name = f"node{number}"
        (self.folder / f"spool-{name}").mkdir(exist_ok=True)
        script = NODE.format(name=name, folder=self.folder)
        outside = ["nsenter", f"--net=/run/netns/{self.tag}-{number}"]
        inside = [
            "unshare",
            "--pid",
            "--uts",
            "--mount",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "bash",
            "-c",
            script,
        ]
        self._daemon(name, [*outside, *inside])

    def crash(self, number: int) -> None:
        """End a node at once: its namespace's first process is killed, and all others with it."""
        daemon = self.daemons.pop(f"node{number}")
        daemon.kill()
        daemon.wait()

    def kill_slurmd(self, number: int) -> None:
        """SIGKILL to a node's daemon; what runs there goes on."""
        for pid in self._slurmd(number):
            os.kill(pid, signal.SIGKILL)

    def limit_files(self, number: int, most: int) -> None:
        """As a wrong LimitNOFILE= does: no process that Slurm starts on the node opens more, until it is started anew."""
        for pid in self._slurmd(number):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, most))

    def _slurmd(self, number: int) -> list[int]:
        mine = f"slurmd\0-D\0-N\0node{number}\0-f\0{self._conf}"
        found = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and _words(entry).startswith(mine)]
        return [int(entry.name) for entry in found]

    def link(self, number: int, *, up: bool) -> None:
        """Cut a node's cable, or mend it."""
        _ip(f"-n {self.tag}-login link set v{number} {'up' if up else 'down'}")

    def shape(self, number: int, rate: str) -> None:
        """Let a node send no faster than that (`20mbit`); empty: as fast as it can."""
        queue = (
            f"qdisc replace dev eth0 root tbf rate {rate} burst 32kbit latency 50ms"
            if rate
            else "qdisc del dev eth0 root"
        )
        subprocess.run(["tc", "-n", f"{self.tag}-{number}", *queue.split()], check=True, capture_output=True)

    @property
    def _conf(self) -> str:
        return f"{self.folder}/slurm.conf"

    def _munge_files(self) -> list[str]:
        names = {"key-file": "munge.key", "socket": "munge.sock", "pid-file": "munge.pid", "log-file": "munged.log"}
        return [f"--{option}={self.folder}/{name}" for option, name in (*names.items(), ("seed-file", "munge.seed"))]

    def _write(self) -> None:
        self.folder.chmod(0o755)
        for name in ("bin", "state"):
            (self.folder / name).mkdir()
        (self.folder / "munge.key").write_bytes(os.urandom(128))
        (self.folder / "munge.key").chmod(0o400)
        (self.folder / "cgroup.conf").touch()
        hosts = ["127.0.0.1 localhost", f"{LOGIN} login", *(f"{_address(k)} node{k}" for k in self._numbers)]
        (self.folder / "hosts").write_text("\n".join(hosts) + "\n")
        line = "NodeName=node{0} NodeAddr={1} NodeHostname=node{0} Port={2} CPUs={3} RealMemory=4096 State=UNKNOWN"
        nodes = "\n".join(line.format(k, _address(k), 26820 + k, self.cpus) for k in self._numbers)
        (self.folder / "slurm.conf").write_text(CONF.format(folder=self.folder, login=LOGIN, nodes=nodes))
        self._script("on-login", ON_LOGIN.format(folder=self.folder, tag=self.tag))
        for name in CLIENTS:
            program = shutil.which(name, path=PATH)
            self._script(name, f'#!/bin/sh\nexec {self.folder}/bin/on-login {program} "$@"\n')

    @property
    def _numbers(self) -> range:
        return range(1, self.nodes + 1)

    def _script(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def _connect(self) -> None:
        """A bridge on the login node, and a cable from it to each node."""
        login = f"{self.tag}-login"
        _ip(f"netns add {login}")
        _ip(f"-n {login} link set lo up")
        _ip(f"-n {login} link add br0 type bridge")
        _ip(f"-n {login} addr add {LOGIN}/24 dev br0")
        _ip(f"-n {login} link set br0 up")
        for k in self._numbers:
            node = f"{self.tag}-{k}"
            _ip(f"netns add {node}")
            _ip(f"-n {node} link set lo up")
            _ip(f"-n {login} link add v{k} type veth peer name eth0 netns {node}")
            _ip(f"-n {login} link set v{k} master br0 up")
            _ip(f"-n {node} addr add {_address(k)}/24 dev eth0")
            _ip(f"-n {node} link set eth0 up")

    def _daemon(self, name: str, words: list[str]) -> None:
        log = (self.folder / f"{name}.out").open("ab")
        environ = {**os.environ, "PATH": f"{os.environ['PATH']}:{PATH}", "SLURM_CONF": self._conf}
        self.daemons[name] = subprocess.Popen(
            words, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        log.close()

    def idle(self) -> int:
        """How many nodes wait for work."""
        try:
            listed = self.run("sinfo", "--noheader", "--Node", "--states=idle", "--format=%N", timeout=5)
        except (AssertionError, subprocess.TimeoutExpired):  # not up yet
            return 0
        return len(set(listed.split()))


def clear(folder: Path) -> None:
    """Take down the cluster of that folder, with all that runs on it, whoever started it."""
    wait_until(lambda: not _killed(f"SLURM_CONF={folder}/slurm.conf\0"), every=0.05)
    subprocess.run(["umount", "--quiet", str(folder / "disk")], capture_output=True, check=False)
    for host in Path("/run/netns").glob(f"{folder.name}-*"):
        subprocess.run(["ip", "netns", "del", host.name], capture_output=True, check=False)
    shutil.rmtree(folder, ignore_errors=True)


def _killed(variable: str) -> list[str]:
    """The processes with that variable, which are killed; so is all that runs in the namespaces of a node."""
    found = [entry for entry in Path("/proc").glob("[0-9]*") if variable in _words(entry, "environ")]
    for entry in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(entry.name), signal.SIGKILL)
    return [entry.name for entry in found]


def _address(node: int) -> str:
    return f"10.77.0.{node}"


def _words(entry: Path, file: str = "cmdline") -> str:
    try:
        return (entry / file).read_text(errors="replace")
    except OSError:  # it has ended
        return ""


def _ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True, capture_output=True)


def wait_until(is_so: Callable[[], object], seconds: float = PATIENCE_S, every: float = 0.2) -> None:
    """Fail where it does not become so. To ask Slurm costs 30 ms of a core, so it is not asked all the time."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s in vain")
        time.sleep(every)


def _main(words: list[str]) -> int:
    """Run a command with a cluster of so many nodes around it; a shell where none is given."""
    if words[0] == CLEAR:
        clear(Path(words[1]))
        return 0
    cluster = Cluster(int(words[0])).start()
    try:
        command = words[2:] or [os.environ.get("SHELL", "sh")]
        print(f"cluster in {cluster.folder}: {shlex.join(command)}", file=sys.stderr)
        return subprocess.run(command, env={**os.environ, **cluster.environ}, check=False).returncode
    finally:
        cluster.stop()


if __name__ == "__main__":
    raise SystemExit(_main(sys.argv[1:]))
