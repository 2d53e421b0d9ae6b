"""Errors say what, which one, and what to do; each has an exit code."""

import pytest

from fairlead.model import errors


def test_an_error_that_names_sixty_thousand_ids_stays_readable() -> None:
    error = errors.UnknownSlots("example.com/gpu", (f"gpu{n:05d}" for n in range(60_000)))
    assert str(error).startswith("example.com/gpu: unknown device ids: gpu00000, gpu00001")
    assert str(error).endswith("gpu00007 and 59992 more")
    assert len(error.ids) == 60_000


def test_few_ids_are_all_named_in_order() -> None:
    assert str(errors.UnknownSlots("r", ["b", "a"])) == "r: unknown device ids: a, b"


def test_unfit_slots_come_with_their_reasons() -> None:
    error = errors.UnfitSlots("r", [("b", "xid-79"), ("a", "withdrawn")])
    assert str(error) == "r: devices not fit for use: a (withdrawn), b (xid-79)"


def test_a_config_error_holds_every_fault_with_its_source() -> None:
    error = errors.ConfigError("fairlead.yaml", ["one", "two"])
    assert error.problems == ("one", "two")
    assert str(error) == "fairlead.yaml: one\nfairlead.yaml: two"


def test_a_missing_extra_says_how_to_install_it() -> None:
    assert "pip install 'fairlead[demo]'" in str(errors.MissingExtra("The demo", "demo"))


def test_a_conflict_names_both_sides() -> None:
    assert str(errors.EditConflict("env", "A", "1", "2")) == "env 'A' would be set twice: to '1' and to '2'"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.FairleadError, 1),
        (errors.UsageError, 2),
        (errors.HostError, 3),
        (errors.BackendError, 4),
        (errors.NotRunning, 5),
    ],
)
def test_each_branch_has_its_exit_code(kind: type[errors.FairleadError], code: int) -> None:
    assert kind.exit_code == code
    assert issubclass(kind, errors.FairleadError)


@pytest.mark.parametrize("kind", [errors.UnknownSlots, errors.UnfitSlots, errors.BadAsk, errors.EditConflict])
def test_refusals_of_the_kubelets_requests_are_one_branch(kind: type[errors.FairleadError]) -> None:
    assert issubclass(kind, errors.AskRefused)
