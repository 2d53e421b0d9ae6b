"""The recordings can be read, whole."""

from __future__ import annotations

import json

from tests.nvml import from_recording
from tests.vectors import drivers, gfd, nvidia
from tests.vectors.amd import ALLOCATOR, amd
from tests.vectors.gke import gke
from tests.vectors.pack import SHARING, driver_key
from tests.vectors.sharing import sharing

GKE_RECORDED = 48
# Of them, those of partition_gpu: it cuts GPUs before the plugin starts, and is another program. See pack.py.
PARTITION_GPU = {"084", "085", "086", "090", "091", "092", "093", "096", "097"}


def test_every_recording_is_there() -> None:
    assert (len(nvidia()), len(gfd())) == (443, 94)
    asked = [
        call for vector in nvidia().values() for it in vector.result.resources.values() for call in it.allocate or ()
    ]
    preferred = [
        call for vector in nvidia().values() for it in vector.result.resources.values() for call in it.preferred or ()
    ]
    assert (len(asked), len(preferred)) == (5440, 7088)


def test_every_recording_of_those_that_share_memory_is_there() -> None:
    assert {peer: len(sharing(peer)) for peer in SHARING} == {"mini": 36, "gpushare": 46, "volcano": 51}
    calls = [one for peer in SHARING for case in sharing(peer).values() for one in case.outputs.answers if one.rpc]
    assert len(calls) == 103
    assert sum(len(one.envs) for one in calls) == 79


def test_every_recording_of_gkes_plugin_is_there() -> None:
    answers = [one for case in gke().values() for one in case.outputs.answers]
    assert (len(gke()), len(answers), sum(one.rpc == "Allocate" for one in answers)) == (39, 50, 32)
    numbers = {name.partition("-")[0] for name in gke()}
    assert not numbers & PARTITION_GPU
    assert len(numbers) + len(PARTITION_GPU) == GKE_RECORDED


def test_every_recording_of_amds_plugin_is_there() -> None:
    assert (len(amd()), ALLOCATOR in amd()) == (26, True)


def test_every_driver_is_known_and_unchanged() -> None:
    used = {vector.driver for vector in nvidia().values()} | {vector.driver for vector in gfd().values()}
    assert used == drivers().keys()
    for key, driver in drivers().items():
        assert driver_key(driver) == key


def test_every_driver_can_be_simulated() -> None:
    for recorded in drivers().values():
        driver = from_recording(recorded)
        assert len(driver.gpus) == len(recorded["gpus"])
        minors = recorded["mig_minors_file"]
        if minors is not None:  # the formula gives the numbers of the recording
            assert driver.minors() == {name: int(number) for name, number in map(str.split, minors.splitlines())}


def test_a_case_reads_like_the_recording() -> None:
    vector = nvidia()["001-default-t4x1"]
    assert vector.argv == ["nvidia-device-plugin"]
    assert [it.endpoint for it in vector.result.registrations] == ["nvidia-gpu.sock"]
    (gpu,) = drivers()[vector.driver]["gpus"]
    first = (vector.result.resources["nvidia.com/gpu"].allocate or [])[0]
    assert first.response is not None
    assert json.dumps(first.response[0]["envs"]) == json.dumps({"NVIDIA_VISIBLE_DEVICES": gpu["uuid"]})


def test_a_case_of_memory_reads_like_the_recording() -> None:
    case = sharing("mini")["010-single-match"]
    assert [it.endpoint for it in case.outputs.register] == ["doslab.sock"]
    (answer,) = case.outputs.answers
    assert answer.asked == [100]
    assert answer.envs[0]["NVIDIA_VISIBLE_DEVICES"] == case.inputs.gpus[1].uuid
