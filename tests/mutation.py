"""``python -m tests.mutation`` tests random mutants of the pure core and lists the survivors."""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import sysconfig
from collections import Counter
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_CORE = ("wire", "telemetry", "session")
_COPIED = ("receiver", "plugins", "spark_streaming", "deploy", "tests", "docs", "pyproject.toml")

# mutmut reads its settings from the pyproject.toml of the folder it runs in.
_SETTINGS = """
[tool.mutmut]
source_paths = ["receiver"]
only_mutate = {files}
also_copy = ["plugins", "spark_streaming", "docs"]
pytest_add_cli_args = ["-p", "no:cacheprovider"]
pytest_add_cli_args_test_selection = {tests}
track_dependencies = false
use_git_change_detection = false
use_setproctitle = false
# The wording of errors is not behaviour.
do_not_mutate_patterns = ['f"', 'expected=', 'found=']
"""


def main() -> int:
    """Run what the command line asks for; the value is the exit status."""
    parser = argparse.ArgumentParser(prog="tests.mutation", description=__doc__)
    parser.add_argument("--packages", type=lambda text: text.split(","), default=list(_CORE))
    parser.add_argument("--files", type=lambda text: text.split(","), default=[""], help="parts of paths")
    parser.add_argument(
        "--tests", type=lambda text: text.split(","), help="the package's unit tests by default"
    )
    parser.add_argument("--mutants", type=int, default=400, help="at most this many of each package")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if unknown := sorted(set(options.packages) - set(_CORE)):
        parser.error(f"unknown packages: {', '.join(unknown)} (known: {', '.join(_CORE)})")
    for package in options.packages:
        folder = _ROOT / "build/mutation" / package
        paths = [path for path in _tracked(f"receiver/{package}") if path.endswith(".py")]
        files = [path for path in paths if any(part in path for part in options.files)]
        _copy(folder, files, options.tests or [f"tests/unit/{package}"])
        every = _mutants(folder, files)
        sample = random.Random(options.seed).sample(every, min(options.mutants, len(every)))
        sys.stdout.write(f"==> {package}: {len(sample)} of {len(every)} mutants, seed {options.seed}\n")
        sys.stdout.flush()
        _run(folder, sample)
        _report(folder, set(sample))
    return 0


def _tracked(*folders: str) -> list[str]:
    listed = subprocess.check_output(["git", "ls-files", "-z", *folders], cwd=_ROOT, text=True)
    return [name for name in listed.split("\0") if (_ROOT / name).is_file()]


def _copy(folder: Path, files: list[str], tests: list[str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in _tracked(*_COPIED):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_ROOT / name, folder / name)
    with (folder / "pyproject.toml").open("a") as settings:
        settings.write(_SETTINGS.format(files=json.dumps(files), tests=json.dumps(tests)))


def _mutants(folder: Path, files: list[str]) -> list[str]:
    from mutmut.configuration import reset_config
    from mutmut.mutation.file_mutation import mutate_file_contents
    from mutmut.utils.format_utils import get_mutant_name

    names = []
    with contextlib.chdir(folder):
        reset_config()
        for path in map(Path, files):
            mutated = mutate_file_contents(str(path), path.read_text())
            shapes = _shapes(mutated.code)
            names += [
                get_mutant_name(path, name)
                for name in mutated.mutant_names
                if shapes[name] != shapes[name.rpartition("_")[0] + "_orig"]
            ]
    return names


def _shapes(code: str) -> dict[str, str]:
    """Return each function's syntax tree without its texts, which are mostly names for errors."""
    shapes = {}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef):
            texts = (part for part in ast.walk(node) if isinstance(part, ast.Constant))
            for text in texts:
                if isinstance(text.value, str):
                    text.value = None
            shapes[node.name] = ast.dump(node.args) + "".join(map(ast.dump, node.body))
    return shapes


def _run(folder: Path, mutants: list[str]) -> None:
    mutmut = str(Path(sysconfig.get_path("scripts"), "mutmut"))
    command = [mutmut, "run", "--max-children", "1", *mutants]
    with (folder / "mutmut.log").open("w") as log:
        subprocess.run(
            command, cwd=folder, stdout=log, stderr=log, check=True, env=os.environ | {"PYTHONPATH": ""}
        )


def _report(folder: Path, mutants: set[str]) -> None:
    from mutmut.stats import status_by_exit_code

    for meta in sorted(folder.glob("mutants/**/*.meta")):
        codes = json.loads(meta.read_text())["exit_code_by_key"]
        states = {name: status_by_exit_code[codes[name]] for name in codes if name in mutants}
        if states:
            counts = ", ".join(f"{count} {state}" for state, count in Counter(states.values()).most_common())
            sys.stdout.write(f"{meta.relative_to(folder / 'mutants').with_suffix('')}: {counts}\n")
        for name, state in states.items():
            if state not in ("killed", "timeout"):
                sys.stdout.write(f"  {state}: {name}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
