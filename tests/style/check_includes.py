#!/usr/bin/env python3
"""check_includes.py ROOT: the floors of src/README, read off the #include lines.

A file of src/<floor> includes its own folder and lower floors. Besides:
- model may include model/moe; model/moe sees of model only the headers of SHARED_BY_MOE
- a library's headers stay on the floors of OUTSIDE
- a *_host file never reaches Kokkos, directly or through what it includes, because it is
  compiled by the host compiler in a CUDA build
"""
import re
import sys

import files

FLOOR = {"base": 0, "deck": 1, "blas": 1, "comm": 2, "io": 2, "kernels": 3, "model": 4,
         "data": 5, "optim": 5, "train": 6, "plan": 6}
PROGRAMS = 7
SHARED_BY_MOE = {"model/param.hpp", "model/shape.hpp", "model/batch.hpp"}
OUTSIDE = [
    (re.compile(r"Kokkos"), {"base"}),
    (re.compile(r"mpi\.h|mpi-ext\.h"), {"comm", "io"}),
    (re.compile(r"nccl\.h"), {"comm"}),
    (re.compile(r"hdf5|H5"), {"io"}),
    (re.compile(r"dnnl|oneapi/|cblas|cublas"), {"blas"}),
    (re.compile(r"gtest|benchmark/"), set()),
]
INCLUDE = re.compile(r'\s*#\s*include\s*(["<])([^">]+)[">]')


def folder_of(path):
    """"kernels" for src/kernels/norm.cpp, "model/moe" for src/model/moe/x.hpp, None for a
    program (src/main.cpp)."""
    parts = path.parts[1:-1]
    return "/".join(parts) if parts else None


def level(folder):
    return PROGRAMS if folder is None else FLOOR.get(folder.split("/")[0])


def wrong_floor(folder, target):
    """Why a file of `folder` must not include "target" (a path below src), or None."""
    target_folder = target.rsplit("/", 1)[0] if "/" in target else None
    if level(target_folder) is None:
        return f"{target_folder} is no floor of src/README"
    if folder == "model/moe" and target_folder == "model":
        return None if target in SHARED_BY_MOE else "model/moe must not see it"
    if folder is not None and target_folder is not None:
        if folder.split("/")[0] == target_folder.split("/")[0]:
            return None
    if level(target_folder) < level(folder):
        return None
    return f"floor {level(target_folder)} from floor {level(folder)}"


def wrong_library(folder, header):
    for pattern, floors in OUTSIDE:
        if folder is not None and pattern.match(header):
            return None if folder.split("/")[0] in floors else "not on this floor"
    return None


def includes(root, path):
    """(line number, is a project header, name) of every #include of a file."""
    for number, line in enumerate(files.lines(root, path), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1) == '"', match.group(2)


def reaches_kokkos(name, graph, seen):
    """The chain of headers from `name` to Kokkos, or None."""
    if name in seen:
        return None
    seen.add(name)
    for own, header in graph.get(name, []):
        if not own and header.startswith("Kokkos"):
            return [name, header]
        chain = reaches_kokkos(header, graph, seen) if own else None
        if chain:
            return [name] + chain
    return None


def check(root):
    breaches, graph = [], {}
    listed = [p for p in files.listed(root) if p.parts[0] == "src"]
    sources = [p for p in listed if p.suffix in files.CPP]
    for path in sources:
        folder = folder_of(path)
        if level(folder) is None:
            breaches.append(f"{path}: {folder} is no floor of src/README")
            continue
        name = "/".join(path.parts[1:])
        graph[name] = []
        for number, own, header in includes(root, path):
            graph[name].append((own, header))
            why = wrong_floor(folder, header) if own else wrong_library(folder, header)
            if why:
                breaches.append(f"{path}:{number}: includes {header}: {why}")
    for name in sorted(graph):
        if name.endswith(("_host.cpp", "_host.hpp")):
            chain = reaches_kokkos(name, graph, set())
            if chain:
                breaches.append(f"src/{' -> '.join(chain)}: a *_host file without Kokkos")
    return breaches


if __name__ == "__main__":
    files.finish("includes", check(sys.argv[1]))
