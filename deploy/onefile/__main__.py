"""`python -m deploy.onefile [--output FILE] [--add PACKAGE]...`"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from deploy.onefile.build import ROOT, BuildFailed, build


def main() -> int:
    parser = argparse.ArgumentParser("python -m deploy.onefile", description="Builds Fairlead as one executable file.")
    parser.add_argument(
        "--output", type=Path, default=ROOT / "dist" / "fairlead.pyz", help="default: dist/fairlead.pyz"
    )
    parser.add_argument("--add", action="append", default=[], metavar="PACKAGE", help="a package beside it, as for pip")
    given = parser.parse_args()
    try:
        digest = build(given.output, given.add)
    except (BuildFailed, OSError) as error:
        print(f"deploy.onefile: {error}", file=sys.stderr)
        return 1
    size = given.output.stat().st_size
    print(f"{given.output}: {size:,} bytes, for {sys.implementation.cache_tag}, packages {digest[:16]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
