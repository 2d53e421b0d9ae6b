"""`fairlead install-host`: what it writes, what it leaves alone, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fairlead.cli.commands import cli

CONFIG = "backends: [{kind: sim}]\nrules: [{resource: example.com/gpu}]\n"
UNIT = "etc/systemd/system/fairlead.service"
COMMAND = ("--command", "/usr/bin/fairlead")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "f.yaml").write_text(CONFIG)
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def run(root: Path, *args: str) -> Result:
    return CliRunner().invoke(cli, ["install-host", "--root", str(root), *args])


def install(root: Path, *args: str) -> Result:
    return run(root, "--config", str(root.parent / "f.yaml"), *COMMAND, *args)


def tree(root: Path) -> dict[str, bytes]:
    found = (path for path in sorted(root.rglob("*")) if path.is_symlink() or path.is_file())
    return {
        str(path.relative_to(root)): bytes(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in found
    }


def test_it_writes_unit_configuration_variables_and_the_link_that_enables_it(root: Path):
    done = install(root)
    assert done.exit_code == 0, done.output
    found = tree(root)
    assert set(found) == {
        UNIT,
        "etc/fairlead/fairlead.yaml",
        "etc/fairlead/fairlead.env",
        "etc/systemd/system/multi-user.target.wants/fairlead.service",
    }
    assert b"ExecStart=/usr/bin/fairlead run --config /etc/fairlead/fairlead.yaml\n" in found[UNIT]
    assert (root / "etc/fairlead/fairlead.env").stat().st_mode & 0o777 == 0o600
    assert found["etc/systemd/system/multi-user.target.wants/fairlead.service"] == f"/{UNIT}".encode()


def test_a_second_time_nothing_changes_and_the_installed_configuration_is_enough(root: Path):
    install(root)
    before = tree(root)
    again = run(root, *COMMAND)
    assert (again.exit_code, again.output) == (0, "fairlead.service: nothing has changed\n")
    assert tree(root) == before


def test_another_configuration_replaces_the_one_that_it_wrote(root: Path):
    install(root)
    (root.parent / "f.yaml").write_text(CONFIG + "http: {listen: '127.0.0.1:9402'}\n")
    assert install(root).exit_code == 0
    assert b"AF_INET" in tree(root)[UNIT]


def test_printing_writes_nothing(root: Path):
    done = install(root, "--print")
    assert done.exit_code == 0
    assert f"### /{UNIT}\n# Written by `fairlead install-host`" in done.stdout
    assert tree(root) == {}


def test_uninstalling_leaves_nothing(root: Path):
    empty = sorted(root.rglob("*"))
    (root / "etc/systemd/system").mkdir(parents=True)
    install(root)
    (root / "var/cache/fairlead/digest").mkdir(parents=True)
    done = run(root, "--uninstall")
    assert done.exit_code == 0, done.output
    assert tree(root) == {}
    assert not (root / "etc/fairlead").exists()
    assert not (root / "var/cache/fairlead").exists()
    assert empty == []
    assert run(root, "--uninstall").output == "fairlead.service is not installed here\n"


def test_what_others_wrote_is_not_overwritten_without_force(root: Path):
    (root / UNIT).parent.mkdir(parents=True)
    (root / UNIT).write_text("[Service]\nExecStart=/bin/other\n")
    before = tree(root)
    refused = install(root)
    assert refused.exit_code == 3
    assert f"{UNIT} is there already, not written by install-host" in refused.output
    assert tree(root) == before  # not even the other files
    assert install(root, "--force").exit_code == 0
    assert b"fairlead run" in tree(root)[UNIT]


@pytest.mark.parametrize("kind", ["link", "directory"])
def test_a_link_or_a_directory_in_the_way_is_not_followed(root: Path, kind: str):
    (root / UNIT).parent.mkdir(parents=True)
    if kind == "link":
        (root / UNIT).symlink_to("/dev/null")  # as a masked unit is
    else:
        (root / UNIT).mkdir()
    assert install(root).exit_code == 3
    assert (root / UNIT).is_symlink() == (kind == "link")


def test_an_edited_unit_is_kept_and_named(root: Path):
    install(root)
    (root / UNIT).write_text((root / UNIT).read_text() + "# mine\n")
    (root.parent / "f.yaml").write_text(CONFIG + "http: {listen: '127.0.0.1:9402'}\n")
    refused = install(root)
    assert refused.exit_code == 3
    assert "edited since" in refused.output
    removal = run(root, "--uninstall")
    assert removal.exit_code == 3
    assert "nothing was removed" in removal.output
    assert (root / UNIT).exists()
    assert run(root, "--uninstall", "--force").exit_code == 0
    assert tree(root) == {}


def test_variables_that_were_written_by_hand_stay(root: Path):
    install(root)
    variables = root / "etc/fairlead/fairlead.env"
    variables.write_text(variables.read_text() + "NODE_NAME=a\n")
    assert install(root).exit_code == 0
    assert "NODE_NAME=a" in variables.read_text()


def test_a_dialect_has_a_unit_of_its_own_with_its_flags(root: Path):
    assert (
        run(
            root, *COMMAND, "--dialect", "generic", "--", "--device=name: kvm\ngroups: [{paths: [{path: /dev/kvm}]}]"
        ).exit_code
        == 0
    )
    unit = (root / "etc/systemd/system/fairlead-generic.service").read_text()
    assert 'generic "--device=name: kvm\\x0agroups:' in unit
    assert "DevicePolicy=closed" in unit


def test_removing_one_of_two_services_keeps_what_both_use(root: Path):
    install(root)
    run(root, *COMMAND, "--dialect", "amd")
    (root / "var/cache/fairlead").mkdir(parents=True)
    assert run(root, "--uninstall").exit_code == 0
    assert (root / "var/cache/fairlead").exists()
    assert (root / "etc/systemd/system/fairlead-amd.service").exists()


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("--dialect", "nvida"), 2, "did you mean 'nvidia'?"),
        ((), 2, "Give a configuration with --config FILE"),
        (("--dialect", "amd", "--config", "x"), 2, "has flags of its own"),
        (("--dialect", "amd", "--", "-no-such-flag"), 2, "no-such-flag"),
        (("--dialect", "gpushare", "--", "--token=s3cret"), 2, "put a secret into the environment file"),
        (("--", "--nonsense", "1"), 2, "no flags of `fairlead run`"),
        (("--", "--config", "x"), 2, "--config comes before the --"),
        (("--config", "/nowhere/f.yaml"), 2, "/nowhere/f.yaml: cannot be read"),
        (("--kubelet-unit", "kubelet", "--dialect", "amd"), 2, "not the name of a unit"),
        (("--root", "/nowhere", "--dialect", "amd"), 3, "/nowhere: there is no such directory"),
        (("--command", "/root/bin/fairlead", "--dialect", "amd"), 3, "is below a home directory"),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(root: Path, args: tuple[str, ...], code: int, words: str):
    done = run(root, *(() if "--command" in args else COMMAND), *args)
    assert done.exit_code == code, done.output
    assert words in done.output
    assert "s3cret" not in done.output
    assert tree(root) == {}


def test_a_configuration_that_is_wrong_is_not_installed(root: Path):
    (root.parent / "f.yaml").write_text("backends: [{kind: sim}]\nrulez: []\n")
    done = install(root)
    assert done.exit_code == 2
    assert "did you mean 'rules'?" in done.output
    assert tree(root) == {}


def test_a_root_that_cannot_be_written_is_refused(root: Path):
    (root / "etc").write_text("a file")  # also root cannot make a directory of it
    done = install(root)
    assert done.exit_code == 3
    assert "Not a directory" in done.output or "File exists" in done.output


def test_a_directory_that_leads_out_of_the_root_is_refused(root: Path):
    (root.parent / "outside").mkdir()
    (root / "etc").symlink_to(root.parent / "outside")
    done = install(root)
    assert done.exit_code == 3
    assert "leads out of" in done.output
    assert tree(root.parent / "outside") == {}
