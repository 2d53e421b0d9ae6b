"""The sample plugin, broken on purpose: it registers once and never again. The suite must notice."""

from __future__ import annotations

import os

from examples.sample_device_plugin import Sample

import fairlead


class Once(Sample):
    registered = False

    def wait_for(self) -> str | None:
        if self.registered:
            return "nothing: it is broken on purpose"
        self.registered = True
        return None


if __name__ == "__main__":
    fairlead.run(Once(), plugin_dir=os.environ.get("PLUGIN_SOCK_DIR"))
