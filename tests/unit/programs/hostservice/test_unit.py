"""The unit of the host service: what a configuration needs is open, everything else is closed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fairlead.config.load import build
from fairlead.model.errors import UsageError
from fairlead.programs.hostservice.needs import find_needs
from fairlead.programs.hostservice.unit import Service, directives, quote, render

GUIDE = Path(__file__).parents[4] / "docs" / "guide" / "host.md"
SERVICE = Service("fairlead", ("/bin/true", "run"), ("kubelet.service",), "/etc/fairlead/fairlead.env", "Fairlead")
MPS = {"kind": "nvidia", "mps": {"root": "/mps", "managed": True, "replicas": {"nvidia.com/gpu": 2}}}
CONFIGS: dict[str, dict[str, Any]] = {
    "sim": {"backends": [{"kind": "sim"}]},
    "paths": {"backends": [{"kind": "paths", "devices": [{"name": "kvm", "paths": ["/dev/kvm"]}]}]},
    "amd": {"backends": [{"kind": "amd", "ways": ["cdi-cri"]}]},
    "nvidia": {"backends": [{"kind": "nvidia"}]},
    "mps": {"backends": [MPS]},
    "http": {"backends": [{"kind": "sim"}], "http": {"listen": "127.0.0.1:80"}},
    "cluster": {"backends": [{"kind": "sim"}], "amounts": [{"resource": "example.com/core", "perDevice": 1}]},
}


def unit(name: str, **more: Any) -> str:
    raw = {"rules": [{"resource": "example.com/gpu"}], **CONFIGS[name], **more}
    return render(SERVICE, find_needs(build(raw, "test")))


def lines(name: str, **more: Any) -> set[str]:
    return set(unit(name, **more).splitlines())


def test_the_kubelet_waits_for_it_and_never_for_longer_than_a_scan():
    found = lines("sim", scan={"deadline": "10s"})
    assert {"Type=notify", "Before=kubelet.service", "WantedBy=multi-user.target", "TimeoutStartSec=25"} <= found
    assert {"Restart=always", "WatchdogSec=60", "StartLimitIntervalSec=0"} <= found
    assert not [line for line in found if line.startswith(("Requires=", "RequiredBy=", "BindsTo="))]


def test_a_simulation_has_no_capability_no_device_and_no_network():
    closed = {"CapabilityBoundingSet=", "PrivateDevices=yes", "PrivateNetwork=yes", "RestrictAddressFamilies=AF_UNIX"}
    assert closed | {"ProtectSystem=strict", "NoNewPrivileges=yes", "ProtectHome=yes"} <= lines("sim")


@pytest.mark.parametrize("name", ["paths", "amd"])
def test_backends_that_only_look_at_nodes_can_open_none(name: str):
    found = lines(name)
    assert "DevicePolicy=closed" in found
    assert "PrivateDevices=yes" not in found


def test_a_driver_may_be_opened_and_its_library_may_make_code():
    found = lines("nvidia")
    assert not found & {"DevicePolicy=closed", "PrivateDevices=yes", "MemoryDenyWriteExecute=yes"}
    assert {"CapabilityBoundingSet=", "PrivateNetwork=yes"} <= found


def test_control_daemons_run_beside_it_with_what_the_driver_asks_of_them():
    found = lines("mps")
    assert {"CapabilityBoundingSet=CAP_SYS_ADMIN", "ReadWritePaths=-/mps"} <= found
    assert "MemoryMax=512M" not in found


@pytest.mark.parametrize(("name", "capabilities"), [("http", "CAP_NET_BIND_SERVICE"), ("cluster", "")])
def test_the_network_is_there_for_those_that_use_it(name: str, capabilities: str):
    found = lines(name)
    assert {"RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6", f"CapabilityBoundingSet={capabilities}"} <= found
    assert not found & {"PrivateNetwork=yes", "IPAddressDeny=any"}


def test_what_it_writes_in_is_made_first_and_stays_optional_for_that_step():
    found = lines("amd", kubelet={"directory": "/srv/kubelet"})
    assert "ExecStartPre=+mkdir -p --mode=0750 /srv/kubelet" in found
    assert {"ReadWritePaths=-/srv/kubelet", "ReadWritePaths=-/var/run/cdi"} <= found


def test_the_watchers_directory_is_the_one_that_is_written():
    found = lines("sim", kubelet={"registration": "watcher"})
    assert "ReadWritePaths=-/var/lib/kubelet/plugins_registry" in found


def test_a_file_in_a_home_directory_can_be_read():
    assert "ProtectHome=read-only" in lines("sim", cluster={"kubeconfig": "/root/.kube/config"})


def test_the_code_of_others_is_open_to_more_and_says_so():
    needs = find_needs(build({"backends": [{"kind": "acme"}], "rules": [{"resource": "example.com/gpu"}]}, "test"))
    assert needs.network
    assert "'acme'" in needs.notes[0]


def test_a_relative_directory_is_refused():
    with pytest.raises(UsageError, match=r"cdi.*absolute path"):
        lines("amd", backends=[{"kind": "amd", "ways": ["cdi-cri"], "cdi": {"directory": "cdi"}}])


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("--mig-strategy=mixed", "--mig-strategy=mixed"),
        ("50%", "50%%"),
        ("$HOME", "$$HOME"),
        ("two words", '"two words"'),
        ('a"b\\c', '"a\\"b\\\\c"'),
        ("", '""'),
        ("a;b", '"a;b"'),
        ("line\nbreak", '"line\\x0abreak"'),
    ],
)
def test_a_word_reaches_the_program_as_it_is(word: str, shown: str):
    assert quote(word) == shown


def test_the_guide_gives_a_reason_for_every_directive_and_for_no_other():
    told = set(
        re.findall(r"^\| `(\w+)=?", GUIDE.read_text().split("## The sandbox")[1].split("\n## ")[0], re.MULTILINE)
    )
    one_file = render(Service(**{**_fields(SERVICE), "one_file": True}), find_needs(build(_raw("sim"), "test")))
    assert told == directives([one_file, *(unit(name) for name in CONFIGS)])


def _raw(name: str) -> dict[str, Any]:
    return {"rules": [{"resource": "example.com/gpu"}], **CONFIGS[name]}


def _fields(service: Service) -> dict[str, Any]:
    return {name: getattr(service, name) for name in service.__struct_fields__}


@pytest.mark.parametrize("name", CONFIGS)
def test_systemd_takes_the_unit_and_finds_it_safe(name: str, tmp_path: Path):
    """Reads files only: no manager is started."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        if os.environ.get("CI") == "true" and Path("/etc/debian_version").exists():
            pytest.fail("CI has Debian, and can install systemd")
        pytest.skip("there is no systemd-analyze here")
    path = tmp_path / "fairlead.service"
    path.write_text(unit(name))
    done = subprocess.run([analyze, "verify", "--man=no", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    judge = [analyze, "security", "--offline=true", "--no-pager", "--threshold=25", str(path)]
    judged = subprocess.run(judge, capture_output=True, text=True, check=False)
    assert judged.returncode == 0, judged.stdout
