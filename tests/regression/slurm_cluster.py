"""A real Slurm on this machine: munged, slurmctld and slurmd for four virtual nodes.

    cluster = slurm_cluster.Cluster(folder)      # raises Missing with the reason
    cluster.run("sbatch", ...)
    cluster.stop()

Needs no systemd and no root; ports and files are its own. 22.05 or newer.
"""
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time

NODES = 4
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue", "srun")
GOING = ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED")
CONF = """
ClusterName=desk
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={d}/munge.socket
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={d}/state
SlurmdSpoolDir={d}/spool/%n
SlurmctldPidFile={d}/slurmctld.pid
SlurmdPidFile={d}/slurmd-%n.pid
SlurmctldLogFile={d}/log/slurmctld.log
SlurmdLogFile={d}/log/slurmd-%n.log
TmpFS={d}/tmp-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
SwitchType=switch/none
KillWait=5
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] \
CPUs=4 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=4000 \
State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Missing(Exception):
    """Slurm cannot be had here, and why."""


def free_ports(count):
    """The first of `count` ports in a row that nothing listens on."""
    for first in range(20000 + os.getpid() % 2000 * 8, 65000, count):
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
    raise Missing("no free ports")


class Cluster:
    def __init__(self, folder):
        path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        absent = [name for name in PROGRAMS if not shutil.which(name, path=path)]
        if absent:
            raise Missing("not installed: " + ", ".join(absent))
        if os.geteuid() != 0:
            raise Missing("virtual nodes of Slurm need root")
        self.folder = folder
        self.env = {**os.environ, "PATH": path, "SLURM_CONF": f"{folder}/slurm.conf"}
        self.processes = {}
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self):
        for name in ("state", "spool", "log", *(f"tmp-n{i + 1}" for i in range(NODES))):
            os.makedirs(os.path.join(self.folder, name))
        self._munge()
        host = socket.gethostname().split(".")[0]
        first = free_ports(NODES + 1)
        user = subprocess.check_output(["id", "-un"], text=True).strip()
        with open(f"{self.folder}/slurm.conf", "w") as file:
            file.write(CONF.format(host=host, port=first, first=first + 1, d=self.folder,
                                   last=first + NODES, nodes=NODES, user=user))
        self._daemon("slurmctld", "slurmctld", "-D", "-c")
        for i in range(1, NODES + 1):
            self.start_node(i)
        self.until(lambda: self.states().count("idle") == NODES, "four idle nodes", 60)

    def _munge(self):
        key = f"{self.folder}/munge.key"
        with open(key, "wb") as file:
            file.write(secrets.token_bytes(1024))
        os.chmod(key, 0o400)
        files = [f"--{name}={self.folder}/munged.{name.split('-')[0]}"
                 for name in ("pid-file", "seed-file", "log-file")]
        self._daemon("munged", "munged", "--foreground", "--force", f"--key-file={key}",
                     f"--socket={self.folder}/munge.socket", *files)
        socket_file = f"{self.folder}/munge.socket"
        self.until(lambda: os.path.exists(socket_file), "munge's socket", 20)

    def _daemon(self, name, *command):
        with open(f"{self.folder}/log/{name}.out", "w") as out:
            self.processes[name] = subprocess.Popen(
                command, env=self.env, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                start_new_session=True)

    def start_node(self, i):
        self._daemon(f"n{i}", "slurmd", "-D", "-c", "-N", f"n{i}")

    def lose_node(self, i):
        """Kills the daemon of a node; the controller is told that the node is down."""
        self.processes[f"n{i}"].kill()
        self.processes[f"n{i}"].wait()
        self.run("scontrol", "update", f"nodename=n{i}", "state=down", "reason=lost")

    def run(self, *command, check=True, cwd=None):
        done = subprocess.run(command, env=self.env, cwd=cwd, text=True, timeout=120,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if check and done.returncode:
            raise AssertionError(f"{command} ended with {done.returncode}: {done.stdout}")
        return done.stdout if check else done

    def states(self):
        done = self.run("sinfo", "-h", "-N", "-o", "%T", check=False)
        return done.stdout.split() if done.returncode == 0 else []

    def job(self, number):
        """{"JobState": ..., "Restarts": ...} of scontrol show job."""
        text = self.run("scontrol", "show", "job", str(number))
        return dict(word.partition("=")[::2] for word in text.split() if "=" in word)

    def cancel(self, number):
        """Ends a job with all its processes."""
        self.run("scancel", "--signal=KILL", "--full", str(number), check=False)
        self.run("scancel", str(number), check=False)
        self.until(lambda: self.job(number)["JobState"] not in GOING,
                   f"end of job {number}")

    def until(self, happened, what, seconds=90):
        end = time.monotonic() + seconds
        while not happened():
            if time.monotonic() > end:
                raise AssertionError(f"no {what} within {seconds} s")
            time.sleep(0.1)

    def stop(self):
        for name, process in reversed(self.processes.items()):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._end_steps()

    def _end_steps(self):
        """What jobs left behind, told by its environment: keepers of steps, launchers."""
        mark = f"SLURM_CONF={self.folder}/".encode()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    if mark in file.read():
                        os.kill(int(pid), signal.SIGKILL)
            except OSError:
                continue  # gone meanwhile
