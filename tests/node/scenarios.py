"""The scenarios of a device plugin's life, and who plays each: the true kubelet, the conformance suite, or both.

The numbers are those of the list that the conformance suite was made from. Knows names only: it imports no test.
`python -m tests.node.scenarios` writes the table into the guide.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "real-node.md"
BEGIN = "<!-- scenarios: made by `python -m tests.node.scenarios` -->"
END = "<!-- end of scenarios -->"
NUMBERS = (*range(1, 25), 29, 32)


@dataclass(frozen=True, slots=True)
class Scenario:
    number: int
    what: str
    node: tuple[str, ...]  # module::test in tests/node
    conformance: tuple[str, ...] = ()  # empty: what is seen is the kubelet's doing, and no plugin can get it wrong


SCENARIOS = (
    Scenario(
        1,
        "registered devices are capacity and allocatable",
        ("test_registration::test_registered_devices_are_capacity_and_allocatable",),
        ("C01", "C09"),
    ),
    Scenario(
        2,
        "a pod gets what it asks for, and pod-resources says so in both versions",
        ("test_registration::test_a_pod_gets_exactly_what_it_asks_for",),
        ("C18",),
    ),
    Scenario(
        3,
        "a CDI device is there inside, with its environment",
        ("test_library::test_a_container_sees_its_cdi_device_and_no_other",),
        ("C21",),
    ),
    Scenario(
        4,
        "a container that restarts keeps its device; a second pod gets another",
        ("test_restarts::test_a_crashed_container_gets_the_same_device_again",),
        ("C28", "C33"),
    ),
    Scenario(
        5,
        "the kubelet restarts, the plugin registers again, the pod keeps its device",
        ("test_restarts::test_a_restarted_kubelet_has_everything_back",),
        ("C41", "C57"),
    ),
    Scenario(
        6,
        "a container restarts, then the kubelet",
        ("test_restarts::test_container_crash_then_kubelet_restart",),
    ),
    Scenario(
        7,
        "a pod that succeeded stays so when plugin and kubelet go",
        ("test_endings::test_a_pod_that_has_succeeded_stays_so_without_the_daemon",),
    ),
    Scenario(
        8,
        "the plugin goes and comes back; its pod does not notice",
        ("test_restarts::test_a_restarted_daemon_does_not_disturb_a_pod",),
        ("C58", "C63"),
    ),
    Scenario(
        9,
        "the kubelet restarts, then the plugin",
        ("test_restarts::test_kubelet_restart_then_daemon_restart",),
        ("C41", "C58"),
    ),
    Scenario(
        10,
        "a pod is deleted while the kubelet is down; its device is free again",
        ("test_endings::test_a_pod_deleted_while_the_kubelet_is_down_frees_its_device",),
    ),
    Scenario(
        11,
        "init container and sidecar share a device, the app has its own",
        ("test_registration::test_init_and_sidecar_share_a_device_and_the_app_has_its_own",),
        ("C85", "C86"),
    ),
    Scenario(
        12,
        "the node reboots without the plugin: the pod fails, with the reason",
        ("test_endings::test_after_a_reboot_without_the_daemon_a_pod_fails_and_with_it_the_next_one_runs",),
    ),
    Scenario(
        13,
        "the plugin runs but does not register again: nothing is counted, the pod fails",
        (
            "test_broken::test_a_plugin_that_runs_but_does_not_register_again_has_lost_its_devices_and_its_pod",
            "test_restarts::test_a_daemon_that_starts_before_the_kubelet_waits_for_it",
        ),
        ("C41", "C50"),
    ),
    Scenario(
        14,
        "a directory among the sockets survives kubelet restarts",
        ("test_broken::test_a_plugins_own_directory_among_the_sockets_survives_kubelet_restarts",),
        ("C64",),
    ),
    Scenario(
        15,
        "the plugin is removed and the kubelet restarts: the capacity goes to nothing",
        (
            "test_broken::test_after_the_daemon_is_removed_a_restarted_kubelet_counts_nothing",
            "test_five_minutes::test_a_daemon_removed_before_a_kubelet_restart_stays_at_nothing",
        ),
    ),
    Scenario(
        16,
        "a plugin that does not answer GetDevicePluginOptions is refused",
        ("test_broken::test_a_plugin_that_does_not_tell_its_options_is_refused",),
        ("C06",),
    ),
    Scenario(
        17,
        "the only device fails and recovers",
        ("test_health::test_a_single_device_fails_and_recovers",),
        ("C12", "C87", "C88"),
    ),
    Scenario(
        18,
        "a device fails while a pod holds it; the pod runs on",
        ("test_health::test_a_pod_runs_on_when_its_device_fails",),
    ),
    Scenario(
        19,
        "four devices fail and recover one by one",
        ("test_health::test_four_devices_fail_and_recover_one_by_one",),
    ),
    Scenario(
        20,
        "a list that fails at once is not asked for again",
        ("test_broken::test_a_list_that_fails_at_once_is_not_asked_for_again",),
        ("C09",),
    ),
    Scenario(
        21,
        "a list that fails later is not asked for again, and is forgotten after five minutes",
        (
            "test_broken::test_a_list_that_fails_later_is_not_asked_for_again",
            "test_five_minutes::test_a_list_that_failed_is_remembered_for_five_minutes_and_never_asked_for_again",
        ),
        ("C14", "C47"),
    ),
    Scenario(
        22,
        "a plugin that stopped has nothing allocatable, and is forgotten after five minutes",
        (
            "test_health::test_without_the_daemon_nothing_is_allocatable_and_the_capacity_stays",
            "test_five_minutes::test_a_stopped_daemon_is_remembered_for_five_minutes",
            "test_five_minutes::test_a_daemon_that_comes_back_too_late_finds_its_pod_as_it_was",
        ),
        ("C59",),
    ),
    Scenario(
        23,
        "the status of a pod shows the health of its device",
        ("test_health::test_the_pods_status_tells_the_health_of_its_device",),
    ),
    Scenario(
        24,
        "and so it does for a container that cannot start",
        ("test_endings::test_a_container_that_cannot_start_tells_the_health_of_its_device",),
    ),
    Scenario(
        29,
        "the list names no NUMA node where none is known, before and after a kubelet restart",
        ("test_registration::test_the_numa_node_is_told_only_where_it_is_known",),
    ),
    Scenario(
        32,
        "registering again on another socket replaces the list",
        ("test_registration::test_a_new_daemon_replaces_the_list_of_the_old_one",),
        ("C41", "C65"),
    ),
)


def table() -> str:
    rows = ["| | scenario | on the node | conformance |", "|---|---|---|---|"]
    for one in SCENARIOS:
        places = ", ".join(dict.fromkeys(f"`{name.partition('::')[0]}.py`" for name in one.node))
        rules = ", ".join(f"[{rule}](../reference/conformance.md#{rule.lower()})" for rule in one.conformance)
        rows.append(f"| {one.number} | {one.what} | {places} | {rules} |")
    return "\n".join(rows)


def written(page: str) -> str:
    """The page with the table as it should be."""
    head, _, rest = page.partition(BEGIN)
    _, _, foot = rest.partition(END)
    return f"{head}{BEGIN}\n{table()}\n{END}{foot}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
