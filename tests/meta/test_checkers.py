#!/usr/bin/env python3
"""Every checker of tests/style accepts a clean tree and fails on a planted breach."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

STYLE = pathlib.Path(__file__).resolve().parents[1] / "style"
ROOT = STYLE.parents[1]
CLEAN = {
    "src/base/types.hpp": "#pragma once\n#include <Kokkos_Core.hpp>\n",
    "src/deck/deck.hpp": "#pragma once\n",
    "src/comm/mpi_host.cpp": "#include <mpi.h>\n\n#include \"deck/deck.hpp\"\n",
    "src/kernels/norm.hpp": "#pragma once\n#include \"base/types.hpp\"\n",
    "src/model/shape.hpp": "#pragma once\n#include \"deck/deck.hpp\"\n",
    "src/model/block.hpp": "#pragma once\n#include \"model/moe/router.hpp\"\n",
    "src/model/moe/router.hpp": "#pragma once\n#include \"model/shape.hpp\"\n",
    "src/plan/plan.cpp": "#include \"model/block.hpp\"\n",
    "src/main.cpp": "#include \"plan/plan.hpp\"\n",
    "src/train/step.hpp": "#pragma once\n",
    "jobscripts/a.sh": "#!/bin/sh\n",
}


def run(script, *arguments):
    return subprocess.run([sys.executable, str(STYLE / script), *map(str, arguments)],
                          capture_output=True, text=True)


class Planted(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        for path, text in CLEAN.items():
            self.write(path, text)
        shutil.copy(ROOT / ".clang-format", self.root)

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def plant(self, path, text, script, *check):
        """Clean before, one breach that names the file after."""
        before = run(script, *check, self.root)
        if before.returncode == 77:
            self.skipTest(before.stdout)
        self.assertEqual(before.returncode, 0, before.stdout + before.stderr)
        self.write(path, text)
        after = run(script, *check, self.root)
        self.assertEqual(after.returncode, 1, after.stdout + after.stderr)
        self.assertIn(path, after.stdout)

    def test_a_higher_floor(self):
        self.plant("src/deck/x.cpp", '#include "kernels/norm.hpp"\n', "check_includes.py")

    def test_a_floor_at_the_side(self):
        self.plant("src/plan/x.cpp", '#include "train/step.hpp"\n', "check_includes.py")

    def test_experts_looking_into_the_block(self):
        self.plant("src/model/moe/x.cpp", '#include "model/block.hpp"\n',
                   "check_includes.py")

    def test_an_unknown_floor(self):
        self.plant("src/attic/x.cpp", "\n", "check_includes.py")

    def test_a_library_on_the_wrong_floor(self):
        self.plant("src/train/x.cpp", "#include <mpi.h>\n", "check_includes.py")

    def test_a_host_file_that_reaches_kokkos(self):
        self.plant("src/kernels/x_host.cpp", '#include "kernels/norm.hpp"\n',
                   "check_includes.py")

    def test_a_long_line(self):
        self.plant("jobscripts/x.sh", "#" * 91 + "\n", "check_style.py", "size")

    def test_a_long_file(self):
        self.plant("src/base/x.cpp", "int a;\n" * 501, "check_style.py", "size")

    def test_a_long_function(self):
        body = "".join(f"  a += {i};\n" for i in range(70))
        self.plant("src/base/x.cpp", f"void f(int a,\n       int b) {{\n{body}}}\n",
                   "check_style.py", "size")

    def test_a_long_python_function(self):
        body = "def f():\n" + "    pass\n" * 70
        self.plant("tests/x.py", body, "check_style.py", "size")

    def test_a_file_that_clang_format_would_change(self):
        self.plant("src/base/x.cpp", "int   a;\n", "check_style.py", "format")

    def test_a_path_of_a_workplace(self):
        self.plant("jobscripts/x.sh", "cd " + "/".join(["", "work", "x"]) + "\n",
                   "check_style.py", "words")

    def test_a_host_of_a_registry(self):
        self.plant("jobscripts/x.sh", ".".join(["deb", "debian", "org"]) + "\n",
                   "check_style.py", "words")

    def test_a_source_that_kokkos_5_does_not_compile(self):
        good, bad = self.root / "good.cpp", self.root / "bad.cpp"
        good.write_text("Kokkos::View<int*> v;\n")
        bad.write_text("Kokkos::InitArguments left_with_version_4;\n")
        for sources, code in (([good], 0), ([good, bad], 1)):
            (self.root / "compile_commands.json").write_text(json.dumps(
                [{"file": str(s), "directory": str(self.root),
                  "command": f"g++ -DKOKKOS_DEPENDENCE -std=c++20 -fopenmp -c {s}"}
                 for s in sources]))
            result = run("kokkos5.py", self.root)
            if result.returncode == 77:
                self.skipTest(result.stdout)
            self.assertEqual(result.returncode, code, result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main()
