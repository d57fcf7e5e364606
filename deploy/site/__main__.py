"""Command line of the docs site: build it, or print one generated reference page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from deploy.site.build import ROOT, SiteError, build
from deploy.site.reference import PAGES


def main() -> int:
    """Build the site, or print the page that ``--print`` names; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m deploy.site", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site", help="folder for the result")
    parser.add_argument("--print", choices=sorted(PAGES), dest="page", help="print one reference page")
    arguments = parser.parse_args()
    if arguments.page:
        sys.stdout.write(PAGES[arguments.page]())
        return 0
    try:
        index = build(arguments.out)
    except SiteError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{index}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
