"""Makes the browser tests possible on this machine: `python -m tests.browser.provision`.

Installs the Python packages into this environment, and Debian's headless Chromium where this machine has apt and we are
root. Says what is missing otherwise; the tests are then skipped with that reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PACKAGES = ("chromium-headless-shell", "fonts-noto-core", "fonts-noto-cjk")


def browser() -> str | None:
    """The path of a Chromium, if there is one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def main() -> int:
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    constraints = str(ROOT / "requirements" / "constraints.txt")
    subprocess.run([*command, "-c", constraints, "-e", f"{ROOT}[browser]"], check=True)
    if browser() is None:
        if os.geteuid() or not shutil.which("apt-get"):
            print("no Chromium on this machine: install one, for instance Debian's chromium-headless-shell")
            return 0
        env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-qq"], env=env, check=False)
        subprocess.run(["apt-get", "install", "-qq", "-y", "--no-install-recommends", *PACKAGES], env=env, check=True)
    print(f"browser: {browser()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
