#!/usr/bin/python3
"""A rank that stops is named by the ranks that wait for it, and the program ends with 5.

    check_stuck.py TEST_PROGRAM
"""

import os
import signal
import subprocess
import sys
import time


def start(program, test):
    """Three ranks of the disabled test."""
    command = ["mpirun", "-n", "3", program]
    command.append("--gtest_also_run_disabled_tests")
    command.append("--gtest_filter=DISABLED_Stuck." + test)
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def children(pid):
    """Processes whose parent is pid."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="ascii") as f:
                state, parent = f.read().rsplit(")", 1)[1].split()[:2]
        except (OSError, ValueError):
            continue
        if int(parent) == pid:
            found.append((int(name), state))
    return found


def launcher_crashed(process, text):
    """mpirun itself died: Open MPI 4.1 does so after about one abort in ten."""
    return process.returncode == -signal.SIGSEGV and "PMIx_server_finalize" in text


def stops(program, test, words):
    """True when the program ends with 5 and says all the words."""
    for _ in range(3):
        process = start(program, test)
        text, _ = process.communicate(timeout=60)
        if not launcher_crashed(process, text):
            break
        print(f"mpirun crashed after {test}; again")
    good = process.returncode == 5 and all(word in text for word in words)
    print(f"{'ok ' if good else 'BAD'} {test}: exit {process.returncode}")
    if not good:
        print(text)
    return good


def slow_rank_is_waited_for(program):
    process = start(program, "SlowIsNotStuck")
    deadline = time.time() + 30
    stopped = []
    while not stopped and time.time() < deadline:
        time.sleep(0.2)
        stopped = [pid for pid, state in children(process.pid) if state == "T"]
    time.sleep(2)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    text, _ = process.communicate(timeout=60)
    good = process.returncode == 0 and len(stopped) == 1
    print(f"{'ok ' if good else 'BAD'} a slow rank: exit {process.returncode}")
    if not good:
        print(text)
    return good


def main():
    program = sys.argv[1]
    exchange = ["rank 0 has waited", "rank 2 has waited", "an all-to-all exchange"]
    exchange += ["the group of ranks 0-2", "to ranks 1 (job/stuck_seconds)"]
    good = [
        stops(program, "Exchange", exchange),
        stops(program, "Sum", ["in a reduction, operation 1 of the group of ranks 0-2"]),
        slow_rank_is_waited_for(program),
    ]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
