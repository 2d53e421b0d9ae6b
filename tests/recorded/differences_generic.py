"""Where ours answers otherwise than squat's generic-device-plugin, on purpose. The guide has this table; a test
compares.
"""

from __future__ import annotations

from tests.recorded.outcome import Difference, Differences, Place

SERVED = (
    "001 003 007 008 009 011 012 016 017 020 021 022 023 025 028 "
    "037 042 043 045 050 051 061 063 064 069 071 073 080 081"
)
FUSE = "a68db766f638034740111848aafee2d2dcd6b642"
LONG = f"squat.ai/{'b' * 31}"
BLANK = "b2958e49b5b8886594a55c1a54f780ed77ed695f"
UNIT = "tests/unit/dialects/test_generic.py::"
PATHS = "tests/unit/backends/paths/test_bundle.py::"


def unregistered(name: str) -> Place:
    numbers = {"serial": "013 015", "none": "040", "key": "062 072"}
    return Place(numbers[name], {"registered": [], "registrations": 0})


DIFFERENCES: Differences = {
    "preference": Difference(
        "The daemon offers a preference, so that a request for several devices keeps to one NUMA node where that is "
        "known; theirs offers none.",
        (Place(SERVED, {"preference": True}),),
    ),
    "endpoint": Difference(
        "Sockets are called `fairlead-<domain>_<name>.sock`; theirs are called `gdp-<base64>-<second>.sock`, another "
        "name after each start, so that those of a process that was killed stay.",
        (Place(SERVED, {"endpoint": "fairlead"}),),
    ),
    "empty-request": Difference(
        "A request without a container or without a device is an error; theirs answers it with nothing. The kubelet "
        "makes none.",
        (Place(SERVED, {"no id": "refused", "no container": "refused"}),),
    ),
    "first-device": Difference(
        "A resource registers with its first device; theirs registers it empty, and the node shows 0. Afterwards it "
        "stays registered in both.",
        (unregistered("serial"), unregistered("none"), unregistered("key")),
    ),
    "node-once": Difference(
        "A container with two shares of one device, or two devices with one file, gets that node once; theirs lists it "
        "twice.",
        (
            Place("011", {"squat.ai/fuse in one container": [["/dev/fuse /dev/fuse mrw"]]}),
            Place(
                "008",
                {
                    "squat.ai/pair in one container": [
                        [f"/dev/{one} /dev/{one} mrw" for one in ("ttyUSB0", "ttyUSB1", "video0")],
                    ]
                },
            ),
            Place("050", {"example.org/fuse in one container": [["/dev/fuse /dev/fuse mrw"]]}),
            Place("064", {"squat.ai/key in one container": [["/dev/bus/usb/003/022 /dev/bus/usb/003/022 rw"]]}),
        ),
    ),
    "same-path": Difference(
        "Two groups with one path are one device, in `generic_device_plugin_devices` too; theirs lists one and counts "
        "two.",
        (Place("021", {"squat.ai/serial devices": 1}),),
    ),
    "same-mount-path": Difference(
        "Two devices with one `mountPath` are refused to one container, with the reason; theirs answers with both, and "
        "the container has one of them. To give several, end `mountPath` with `/`.",
        (Place("003", {"squat.ai/serial in one container": "refused"}),),
    ),
    "permissions": Difference(
        "`permissions` other than r, w and m, an unknown `type`, a relative `path` or `mountPath`, and a glob that is "
        "none: the device is left out, with a note that names the key; the others are served. Theirs registers such a "
        "resource, and its pods do not start.",
        (
            Place(
                "016", {"registered": [f"squat.ai/{name} v1beta1" for name in ("aa", "bb", "cc")], "registrations": 3}
            ),
            Place("019 026", {"exit": 1, "runs on": False}),
        ),
    ),
    "long-name": Difference(
        "A name may have up to 63 characters; theirs never listens with over 30 (its socket's path is too long), and "
        "tries for ever.",
        (
            Place(
                "037b",
                {
                    "endpoint": "fairlead",
                    "preference": True,
                    "registered": [f"{LONG} v1beta1"],
                    "registrations": 1,
                    f"{LONG} list": {FUSE: "Healthy"},
                    f"{LONG} {FUSE}": [["/dev/fuse /dev/fuse mrw"]],
                    f"{LONG} devices": 1,
                },
            ),
        ),
    ),
    "serial-blank": Difference(
        "Blanks around a serial number do not count; theirs never finds a device whose serial ends with one.",
        (
            Place(
                "073",
                {
                    "squat.ai/key list": {BLANK: "Healthy"},
                    f"squat.ai/key {BLANK}": [["/dev/bus/usb/001/002 /dev/bus/usb/001/002 rw"]],
                    "squat.ai/key devices": 1,
                },
            ),
        ),
    ),
    "removed-device": Difference(
        "A device that is removed stays listed, unhealthy, for a minute and as long as a pod holds it: a kubelet that "
        "has just chosen it would crash otherwise. Theirs drops it at once.",
        (Place("080", {"step 2 lists": [{"Healthy": 2, "Unhealthy": 1}]}),),
    ),
    "same-name": Difference(
        "Two devices with one name: exit code 1 and a line that says so; theirs panics with 2.",
        (Place("046", {"exit": 1}),),
    ),
    "usb-order": Difference(
        "Several USB matches of a group are in the order of their nodes, so the id stays; in theirs the order, and "
        "with it the id, changes from scan to scan.",
        shown_by=f"{PATHS}test_all_usb_matches_of_a_group_are_one_device_whose_id_does_not_depend_on_the_order",
    ),
    "usb-replug": Difference(
        "After a replug a USB group is the same device under its new id (the id names the node); it is given to a new "
        "pod when no pod holds the old id any more.",
        shown_by=f"{PATHS}test_a_usb_device_that_is_plugged_in_again_is_the_same_device_with_another_node",
    ),
    "usb-number": Difference(
        "USB ids without quotes that YAML takes for numbers are read as written, in hexadecimal, with a note; in a "
        "config file theirs takes them for decimal numbers and finds nothing.",
        shown_by=f"{UNIT}test_usb_ids_that_yaml_takes_for_numbers_are_read_in_hexadecimal",
    ),
    "wrong-file": Difference(
        "A plain file, socket or pipe with `type: Device`, and a node that is missing, are listed as unhealthy, with "
        "the reason in the journal; theirs says Healthy, and the pod does not start.",
        shown_by=f"{PATHS}test_a_file_that_is_no_device_is_unhealthy_unless_it_is_mounted",
    ),
    "numa": Difference(
        "Devices with a PCI parent have their NUMA node in the list; theirs sends none.",
        shown_by=f"{PATHS}test_the_numa_node_of_the_pci_parent_is_listed",
    ),
    "environment": Difference(
        "`VERSION` and `DEVICE` in the environment are not read: with `VERSION` set to anything true theirs prints its "
        "version and ends, with `DEVICE` it does not start.",
        shown_by=f"{UNIT}test_variables_that_break_theirs_are_not_read",
    ),
    "metrics": Difference(
        "`/metrics` has their three names, and Fairlead's own beside them; those of the Go runtime are missing. "
        "An address that is taken is tried again every 5 s; theirs ends.",
        shown_by="tests/system/test_web.py::test_an_address_that_is_taken_is_a_problem_and_devices_are_served",
    ),
}
