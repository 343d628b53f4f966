"""Which files the style checks read, and how they report."""
import pathlib
import subprocess
import sys

CPP = {".cpp", ".hpp"}


def listed(root):
    """Paths of the project's files, from root: what git tracks, else every file."""
    root = pathlib.Path(root)
    if (root / ".git").exists():
        names = subprocess.run(
            ["git", "-C", str(root), "ls-files", "-z"],
            check=True, capture_output=True, text=True).stdout.split("\0")
        paths = [pathlib.Path(name) for name in names if name]
    else:
        paths = [p.relative_to(root) for p in root.rglob("*")]
    return sorted(p for p in paths if (root / p).is_file())


def lines(root, path):
    """Lines of a text file; an empty list for a binary one."""
    try:
        return (pathlib.Path(root) / path).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return []


def finish(name, breaches):
    """Prints the breaches and ends the process: 1 when there is one."""
    for breach in breaches:
        print(breach)
    print(f"{name}: {len(breaches)} breaches" if breaches else f"{name}: clean")
    sys.exit(1 if breaches else 0)
