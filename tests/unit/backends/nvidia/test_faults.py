"""What reports of the driver mean, and to whom."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.clock import FakeClock

from fairlead.backends.nvidia import nvml, open_backend
from fairlead.backends.nvidia.devices import reach
from fairlead.backends.nvidia.faults import TABLE, Faults, xids_from_env
from fairlead.backends.nvidia.spec import IGNORED_XIDS, Evidence, Fault, Health, Scope
from fairlead.kit.decoding import Seconds
from fairlead.model.device import Device
from fairlead.model.errors import ConfigError
from fairlead.model.health import CauseKind


@pytest.mark.parametrize(
    ("disable", "enable", "ignored", "watched"),
    [
        ("", "", IGNORED_XIDS, ()),
        ("all", "", "all", ()),
        ("xids", "", "all", ()),
        ("ALL", "", "all", ()),
        ("", "all", (), ()),
        ("79", "xids", (), ()),
        ("11", "11", (11, *IGNORED_XIDS), (11,)),
        ("68,not-an-int,67", "", (13, 31, 43, 45, 67, 68, 109), ()),
        ("-68", "", IGNORED_XIDS, ()),
        ("68  ", "", IGNORED_XIDS, ()),
        ("79, 48,", "", (13, 31, 43, 45, 48, 68, 79, 109), ()),
        ("all", "79", "all", (79,)),
        ("all", "all", (), ()),
    ],
)
def test_the_variables_mean_what_they_mean_to_nvidias_plugin(
    disable: str, enable: str, ignored: object, watched: tuple[int, ...]
) -> None:
    assert xids_from_env(disable, enable)[:2] == (ignored, watched)


def test_a_number_of_any_length_is_no_xid():
    ignored, _, warnings = xids_from_env("79," + "9" * 5000, "")
    assert 79 in ignored
    assert ["is not an XID" in warning and len(warning) < 200 for warning in warnings] == [True]


def test_what_is_no_xid_is_passed_over_with_a_warning() -> None:
    warnings = xids_from_env("68,not-an-int,-1", "x")[2]
    assert len(warnings) == 3
    assert "DP_DISABLE_HEALTHCHECKS: 'not-an-int' is not an XID" in warnings[0]


def test_by_default_faults_of_programs_harm_nobody_and_all_others_withdraw() -> None:
    faults = Faults(Health())
    kinds = {xid: faults.of_xid(xid)[0].kind for xid in range(200)}
    assert {xid for xid, kind in kinds.items() if kind is CauseKind.APPLICATION} == {13, 31, 43, 45, 68, 109}
    assert set(kinds.values()) == {CauseKind.APPLICATION, CauseKind.NEEDS_RESET}


def test_an_ignored_xid_that_is_watched_withdraws() -> None:
    faults = Faults(Health(ignored_xids="all", watched_xids=(31,)))
    assert faults.watching
    assert faults.of_xid(31)[0].kind is CauseKind.NEEDS_RESET
    assert faults.of_xid(79)[0].kind is CauseKind.APPLICATION
    assert faults.of_event(nvml.DOUBLE_BIT, 0) is None
    assert not Faults(Health(ignored_xids="all")).watching


def test_ecc_errors_count_only_where_they_were_not_corrected() -> None:
    faults = Faults(Health())
    found = faults.of_event(nvml.DOUBLE_BIT, 0)
    assert found is not None
    assert found[0].code == "ecc-double-bit"
    assert faults.of_event(1, 0) is None


def test_options_change_a_line_and_leave_the_rest_of_it() -> None:
    change = Fault(kind=CauseKind.PERMANENT, scope=Scope.NODE, hold=Seconds(5))
    faults = Faults(Health(faults={"xid-79": change, "xid-48": Fault(message="look at the memory")}))
    cause, scope = faults.of_xid(79)
    assert (cause.kind, cause.hold_s, scope) == (CauseKind.PERMANENT, 5.0, Scope.NODE)
    assert cause.message == "GPU has fallen off the bus"
    cause, scope = faults.of_xid(48)
    assert (cause.kind, cause.message, scope) == (CauseKind.NEEDS_RESET, "look at the memory", Scope.INSTANCE)


@pytest.mark.parametrize("xid", [46, 48, 61, 62, 63, 64, 74, 79, 95, 119, 120, 140, 143, 154, 156, 157])
def test_a_fault_that_only_a_reset_cures_asks_for_one(xid: int) -> None:
    assert Faults(Health()).of_xid(xid)[0].cured_by


@pytest.mark.parametrize("xid", [8, 32, 69, 92, 94, 4711])
def test_a_fault_that_may_pass_is_over_with_clean_probes(xid: int) -> None:
    assert Faults(Health()).of_xid(xid)[0].cured_by == ()


def test_options_say_what_cures_a_fault() -> None:
    changes = {
        "xid-63": Fault(cured_by=()),
        "xid-94": Fault(cured_by=(Evidence.ROWS,)),
        "xid-79": Fault(kind=CauseKind.PERMANENT),
    }
    faults = Faults(Health(faults=changes))
    assert [faults.of_xid(xid)[0].cured_by for xid in (63, 94, 79)] == [(), ("rows",), ()]


def test_a_code_that_nothing_reports_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown code 'gpu-lots'; did you mean 'gpu-lost'"):
        open_backend({"health": {"faults": {"gpu-lots": {"kind": "permanent"}}}}, FakeClock())
    open_backend({"health": {"faults": {"xid-4711": {"kind": "permanent"}}}}, FakeClock())


WHOLE = Device("GPU-b")
PARTS = tuple(
    Device(f"MIG-{gi}{ci}", parent="GPU-a", attributes={"giId": str(gi), "ciId": str(ci)})
    for gi, ci in ((1, 0), (1, 1), (2, 0))
)


@pytest.mark.parametrize(
    ("gpu", "gi", "ci", "scope", "reached"),
    [
        ("GPU-a", None, None, Scope.INSTANCE, ["MIG-10", "MIG-11", "MIG-20"]),
        ("GPU-a", 1, 1, Scope.INSTANCE, ["MIG-11"]),
        ("GPU-a", 1, None, Scope.INSTANCE, ["MIG-10", "MIG-11"]),
        ("GPU-a", 9, 0, Scope.INSTANCE, []),
        ("GPU-a", 1, 1, Scope.GPU, ["MIG-10", "MIG-11", "MIG-20"]),
        ("GPU-a", 1, 1, Scope.NODE, ["GPU-b", "MIG-10", "MIG-11", "MIG-20"]),
        ("GPU-b", 5, 0, Scope.INSTANCE, ["GPU-b"]),
        ("GPU-c", None, None, Scope.GPU, []),
    ],
)
def test_a_fault_reaches_its_instance_or_all_of_its_gpu(
    gpu: str, gi: int | None, ci: int | None, scope: Scope, reached: list[str]
) -> None:
    assert [device.id for device in reach((WHOLE, *PARTS), gpu, gi, ci, scope)] == reached


def test_the_guide_has_the_whole_table() -> None:
    guide = Path("docs/guide/nvidia-health.md").read_text()
    for code, line in TABLE.items():
        hold = "" if line.hold_s is None else f"{line.hold_s:g} s"
        cured_by = ", ".join(line.cured_by) or "clean probes"
        assert f"| `{code}` | {line.message} | {line.kind.value} | {hold} | {cured_by} |" in guide


def test_only_some_xids_count_where_options_say_so() -> None:
    """Theirs on GKE: 48 always, and what XID_CONFIG names."""
    faults = Faults(Health(only_xids=(48, 72)))
    kinds = {xid: faults.of_xid(xid)[0].kind for xid in (48, 72, 79, 88, 13)}
    assert [xid for xid, kind in kinds.items() if kind is not CauseKind.APPLICATION] == [48, 72]
    assert faults.watching
    assert faults.beyond_xids  # a GPU that does not answer is none
