"""Makes the tests of the image possible on this machine: `python -m tests.image.provision`.

Installs hadolint into this environment, and what builds images where this machine has apt and we are root. Says what is
missing otherwise; the tests are then skipped with that reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from deploy import image


def main() -> int:
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    constraints = str(image.ROOT / "requirements" / "constraints.txt")
    subprocess.run([*pip, "-c", constraints, "-e", f"{image.ROOT}[image]"], check=True)
    install()
    print(image.lacking() or "the image can be built here")
    return 0


def install() -> None:
    """What `deploy.image` lacks, where apt can give it."""
    if image.lacking() and os.geteuid() == 0 and shutil.which("apt-get"):
        env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-qq"], env=env, check=False)
        command = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *image.PACKAGES]
        subprocess.run(command, env=env, check=True)


if __name__ == "__main__":
    sys.exit(main())
