#!/usr/bin/env python3
"""kokkos5.py BUILD: syntax check of the host sources against the headers of Kokkos 5.

Capstan is built with any Kokkos from 3.4 to 5.x. Debian has 5.2 as a binary package of
its unstable suite; its headers alone are fetched (by name, into the cache) and every
source of BUILD that includes Kokkos is read with them: the commands are those of
BUILD/compile_commands.json with another include path. Exit code 77 (skipped) when the
package cannot be had.
"""
import json
import os
import pathlib
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

SKIPPED = 77
ROOT = pathlib.Path(__file__).resolve().parents[2]
# Takes $1 = folder to fill. Errors of apt go to stderr.
FETCH = """
set -e
. jobscripts/private_apt.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
private_apt "$work" deb sid
apt-get "${apt_options[@]}" update >"$work/log" 2>&1
(cd "$work" && apt-get "${apt_options[@]}" download libkokkos-dev >>"$work/log" 2>&1)
dpkg-deb -x "$work"/libkokkos-dev_*.deb "$work/x"
mkdir -p "$(dirname "$1")"
rm -rf "$1"
mv "$work/x/usr/include/kokkos" "$1"
"""
PASSED_ON = ("-D", "-I", "-march", "-f", "-std")


def headers():
    """Folder of the headers; fetched once."""
    cache = os.environ.get("CAPSTAN_CACHE", pathlib.Path.home() / ".cache/capstan")
    folder = pathlib.Path(cache) / "kokkos-5-headers"
    if not (folder / "Kokkos_Core.hpp").is_file():
        fetch = subprocess.run(["bash", "-c", FETCH, "bash", str(folder)], cwd=ROOT)
        if fetch.returncode != 0:
            print("skipped: package libkokkos-dev cannot be had")
            sys.exit(SKIPPED)
    return folder


def own_flags(command, folder):
    """Flags of a compile command, with Kokkos 5 in place of the build's Kokkos."""
    words, flags = shlex.split(command), []
    for word, following in zip(words, words[1:] + [""]):
        kokkos = pathlib.Path(following) / "Kokkos_Core.hpp"
        if word == "-isystem" and not kokkos.exists():
            flags += [word, following]
        elif word.startswith(PASSED_ON):
            flags.append(word)
    return flags + ["-isystem", str(folder)]


def check(job):
    source, flags = job
    run = subprocess.run(
        ["g++", *flags, "-include", "kokkos5.hpp", "-fsyntax-only", source],
        capture_output=True, text=True)
    if run.returncode != 0:
        print(f"{source}: not with Kokkos 5\n{run.stderr[:4000]}", flush=True)
    return run.returncode == 0


def main(build):
    folder = headers()
    commands = json.loads((build / "compile_commands.json").read_text())
    commands = [c for c in commands if "KOKKOS_DEPENDENCE" in c["command"]]
    if not commands:
        sys.exit("no source of this build uses Kokkos")
    # Kokkos is read once, into a precompiled header that every source begins with.
    scratch = build / "kokkos5"
    scratch.mkdir(exist_ok=True)
    (scratch / "kokkos5.hpp").write_text("#include <Kokkos_Core.hpp>\n")
    flags = own_flags(commands[0]["command"], folder)
    subprocess.run(["g++", *flags, "-x", "c++-header", str(scratch / "kokkos5.hpp"),
                    "-o", str(scratch / "kokkos5.hpp.gch")], check=True)
    jobs = [(c["file"], own_flags(c["command"], folder) + ["-I", str(scratch)])
            for c in commands]
    with ThreadPoolExecutor(max_workers=2) as pool:
        passed = sum(pool.map(check, jobs))
    version = [line.split()[-1] for line in
               (folder / "KokkosCore_config.h").read_text().splitlines()
               if line.startswith("#define KOKKOS_VERSION ")][0]
    print(f"{passed} of {len(jobs)} sources pass with Kokkos {version}")
    sys.exit(0 if passed == len(jobs) else 1)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve())
