#!/usr/bin/env python3
"""check_style.py size|format|words ROOT

size    lines of at most 90 columns; files of at most 500 lines and functions of at most
        60 in src, tests, postprocess and jobscripts
format  C++ files as clang-format leaves them; exit code 77 (skipped) without clang-format
words   nothing that ties the project to one workplace: paths, hosts of package registries
"""
import ast
import pathlib
import re
import shutil
import subprocess
import sys

import files

COLUMNS, FILE_LINES, FUNCTION_LINES = 90, 500, 60
FOLDERS = {"src", "tests", "postprocess", "jobscripts"}
SKIPPED = 77
# Bracketed letters keep this list from finding itself.
WORDS = [
    r"/w[o]rk/", r"/r[o]ot/", r"/tmp/[b]",
    r"(\.\./|\b)sh[a]red/(?=\w+\.md|toolchain|hooks)",
    r"\b(m[a]rin|d[e]sign|t[o]olchain|sim[u]lations|p[e]ers|DEV[E]LOPERS)\.md\b",
    r"\bCOMP[A]SS\b", r"\bf[a]rm-\w+", r"\b([A]nthropic|[C]laude|[C]hatGPT|[C]opilot)\b",
    r"\b(deb|security|snapshot|pypi|files|registry|proxy|conda)"
    r"\.(debian|ubuntu|pythonhosted|npmjs|golang|anaconda|org)\b",
]


def size(root):
    breaches = []
    for path in files.listed(root):
        text = files.lines(root, path)
        if path.name != "LICENSE":
            breaches += [f"{path}:{n}: {len(line)} columns"
                         for n, line in enumerate(text, 1) if len(line) > COLUMNS]
        if path.parts[0] not in FOLDERS:
            continue
        if len(text) > FILE_LINES:
            breaches.append(f"{path}: {len(text)} lines")
        spans = []
        if path.suffix in files.CPP:
            spans = cpp_functions(text)
        elif path.suffix == ".py":
            spans = python_functions("\n".join(text))
        breaches += [f"{path}:{first}: a function of {last - first + 1} lines"
                     for first, last in spans if last - first >= FUNCTION_LINES]
    return breaches


def cpp_functions(text):
    """(first, last) line of what clang-format closes with a lone } in the first column:
    functions (classes and tables end with };, namespaces with a comment)."""
    spans, head = [], 0
    for number, line in enumerate(text, 1):
        if line == "}" and head:
            spans.append((head, number))
        if line and line[0] not in " #/":
            head = 0 if line[0] == "}" else number
    return spans


def python_functions(text):
    return [(node.lineno, node.end_lineno) for node in ast.walk(ast.parse(text))
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def clang_format(root):
    if shutil.which("clang-format") is None:
        print("clang-format is not installed")
        sys.exit(SKIPPED)
    paths = [str(p) for p in files.listed(root) if p.suffix in files.CPP]
    if not paths:
        return []
    run = subprocess.run(["clang-format", "--dry-run", "-Werror", *paths], cwd=root,
                         capture_output=True, text=True)
    found = re.findall(r"^(\S+?):(\d+):\d+: error", run.stderr, re.MULTILINE)
    first = {}
    for path, line in found:
        first.setdefault(path, line)
    if run.returncode != 0 and not first:
        return [run.stderr.strip() or "clang-format failed"]
    return [f"{path}:{line}: not as clang-format leaves it"
            for path, line in first.items()]


def words(root):
    pattern = re.compile("|".join(WORDS))
    breaches = []
    for path in files.listed(root):
        for number, line in enumerate(files.lines(root, path), 1):
            match = pattern.search(line)
            if match:
                breaches.append(f"{path}:{number}: '{match.group(0)}'")
    return breaches


if __name__ == "__main__":
    checks = {"size": size, "format": clang_format, "words": words}
    if len(sys.argv) != 3 or sys.argv[1] not in checks:
        sys.exit(__doc__)
    files.finish(sys.argv[1], checks[sys.argv[1]](pathlib.Path(sys.argv[2])))
