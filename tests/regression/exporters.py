"""The libraries that tests read exports back with: a virtual environment in the cache.

    python = exporters.python()      # its interpreter; raises Missing with the reason

Made once by pip from the package index that this machine uses.
"""
import fcntl
import os
import shutil
import subprocess
import sys

PACKAGES = ("tensorboard", "wandb", "safetensors", "h5py", "numpy")


class Missing(Exception):
    """The libraries cannot be had here, and why."""


def cache():
    default = os.path.join(os.path.expanduser("~"), ".cache", "capstan")
    return os.environ.get("CAPSTAN_CACHE", default)


def works(python):
    imports = "import " + ", ".join(PACKAGES)
    return os.path.exists(python) and subprocess.run(
        [python, "-c", imports], capture_output=True, timeout=300).returncode == 0


def make(folder):
    """Tries every Python of this machine that can make virtual environments."""
    tried = []
    found = [sys.executable, shutil.which("python3"), "/usr/local/bin/python3"]
    for base in dict.fromkeys(path for path in found if path and os.path.exists(path)):
        shutil.rmtree(folder, ignore_errors=True)
        pip = [os.path.join(folder, "bin", "python"), "-m", "pip", "install", "-q"]
        for command in ([base, "-m", "venv", folder], [*pip, *PACKAGES]):
            try:
                done = subprocess.run(command, capture_output=True, text=True,
                                      timeout=600)
            except (OSError, subprocess.TimeoutExpired) as error:
                tried.append(f"{base}: {error}")
                break
            if done.returncode:
                said = (done.stderr or done.stdout).strip().splitlines()
                tried.append(f"{base}: {said[-1] if said else 'failed'}")
                break
        else:
            return
    shutil.rmtree(folder, ignore_errors=True)
    raise Missing("no environment with " + ", ".join(PACKAGES) + ": " + "; ".join(tried))


def python():
    folder = os.path.join(cache(), "exporters")
    found = os.path.join(folder, "bin", "python")
    os.makedirs(cache(), exist_ok=True)
    with open(folder + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not works(found):
            make(folder)
    return found
