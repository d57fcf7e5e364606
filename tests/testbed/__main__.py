"""The command line: ``python -m tests.testbed setup [--parts broker,collector,clients,...]``."""

from __future__ import annotations

import argparse
import sys
import time

from tests.testbed import recipes
from tests.testbed.commands import BuildError
from tests.testbed.parts import GROUPS
from tests.testbed.prerequisites import MissingPrerequisiteError
from tests.testbed.process import StartError


def _parts(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in GROUPS:
            raise argparse.ArgumentTypeError(f"no part {name!r}: choose from {', '.join(GROUPS)}")
    return names


def main() -> int:
    """Run the command line; the result is the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.testbed", description="The real parts that tests use."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    setup = commands.add_parser("setup", help="fetch and build what is not there yet")
    setup.add_argument(
        "--parts",
        type=_parts,
        default=["broker", "collector", "clients", "bridge"],
        help=f"comma-separated, from {', '.join(GROUPS)} (default: broker,collector,clients,bridge)",
    )
    setup.add_argument(
        "--optional", action="store_true", help="say what the machine lacks, and end without an error"
    )
    given = parser.parse_args()
    chosen: list[str] = given.parts

    def progress(line: str) -> None:
        sys.stdout.write(f"testbed: {line}\n")
        sys.stdout.flush()

    start = time.monotonic()
    try:
        recipes.set_up((part for name in chosen for part in GROUPS[name]), progress)
    except MissingPrerequisiteError as error:
        sys.stderr.write(f"testbed: {error}\n")
        if given.optional:
            progress(f"without {', '.join(chosen)}, whose tests are skipped")
        return 0 if given.optional else 1
    except (BuildError, StartError) as error:
        sys.stderr.write(f"testbed: {error}\n")
        return 1
    progress(f"ready: {', '.join(chosen)} ({time.monotonic() - start:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
