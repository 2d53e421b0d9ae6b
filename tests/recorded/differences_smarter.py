"""Where ours is otherwise than smarter-device-manager, on purpose. The guide has this table; a test compares.

There are no recordings of it: each difference names the test that shows ours.
"""

from __future__ import annotations

from tests.recorded.outcome import Difference, Differences

HERE = "tests/recorded/test_smarter.py::"
UNIT = "tests/unit/dialects/test_smarter.py::"
TREE = "tests/unit/backends/paths/test_tree.py::"
MANY = "tests/system/test_smarter.py::"
COMES = f"{MANY}test_a_hundred_files_are_a_hundred_resources_and_one_more_comes_without_a_restart"

DIFFERENCES: Differences = {
    "changes-seen": Difference(
        "Devices that come and go are seen while it runs: those in `/dev`, and in directories that an expression "
        "begins with, at once; others within 30 s. Theirs looks once, when it starts.",
        shown_by=COMES,
    ),
    "removed-device": Difference(
        "A device that is removed is unhealthy while a pod holds it, and its resource goes with the last of its slots. "
        "Theirs has no health.",
        shown_by=COMES,
    ),
    "empty-request": Difference(
        "A request without a device is an error. The kubelet makes none.",
        shown_by=f"{HERE}test_two_slots_of_a_device_bring_its_node_once_and_a_request_for_nothing_is_an_error",
    ),
    "plain-files": Difference(
        "Plain files, sockets and pipes are left out, and links to directories are not followed. Directories are "
        "devices, as in theirs: a runtime passes all nodes in `/dev/snd`.",
        shown_by=f"{TREE}test_a_plain_file_is_left_out_and_named_and_links_to_directories_are_not_followed",
    ),
    "own-directories": Difference(
        "`/dev/fd`, `hugepages`, `mqueue`, `pts` and `shm` are left out.",
        shown_by=f"{HERE}test_directories_that_every_container_has_of_its_own_are_left_out",
    ),
    "many-files": Difference(
        "What comes after 10,000 files is not seen, and `fairlead status` says so.",
        shown_by=f"{TREE}test_more_files_than_the_limit_are_named",
    ),
    "no-count": Difference(
        "An item without `nummaxdevices` offers nothing, and is named; theirs registers resources with 0 devices.",
        shown_by=f"{UNIT}test_a_mistyped_key_is_named_and_the_rest_is_served",
    ),
    "empty-match": Difference(
        "An empty `devicematch` is a mistake; in theirs it stands for every file of `/dev`.",
        shown_by=f"{UNIT}test_what_does_not_fit_is_named_with_its_place",
    ),
    "endpoint": Difference(
        "Each resource has its own socket, `fairlead-smarter-devices_<name>.sock`; theirs is `smarter-<name>.sock`.",
        shown_by=f"{HERE}test_each_resource_has_a_socket_of_its_name_and_offers_a_preference",
    ),
    "refused": Difference(
        "A kubelet that refuses a registration is asked again with growing pauses; theirs asks about 190 times a "
        "second, and forgets a failure when the next resource succeeds.",
        shown_by="tests/unit/fronts/deviceplugin/test_lifecycle.py::"
        "test_refusal_backs_off_with_the_kubelets_words_and_growing_waits",
    ),
    "bad-item": Difference(
        "A mistake in an item of the config file costs this item, with a note.",
        shown_by=f"{UNIT}test_an_item_with_a_mistake_is_left_out_with_a_note_and_the_others_are_served",
    ),
    "exit-code": Difference(
        "A file without an item that is right, and one that cannot be read, end it with code 1 and one line; theirs "
        "ends with 1 or 255.",
        shown_by=f"{HERE}test_a_file_that_cannot_be_served_ends_with_1",
    ),
    "preference": Difference(
        "Preferred allocation is offered; theirs offers none.",
        shown_by=f"{HERE}test_each_resource_has_a_socket_of_its_name_and_offers_a_preference",
    ),
    "numa": Difference(
        "NUMA nodes are listed where a PCI parent has one; theirs sends none.",
        shown_by=f"{HERE}test_the_numa_node_of_a_pci_parent_is_listed",
    ),
}
