"""The accounts of Aliyun's scheduler extender, on paper."""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.model.pod import Pod


class Extender:
    """The books of a scheduler that takes a pod in once, and releases it by what its annotation says at its end.

    As Aliyun's does: the change of a known pod is ignored.
    """

    def __init__(self, cards: Iterable[str], room: int) -> None:
        self.room = room
        self.pods: dict[str, dict[str, int]] = {card: {} for card in cards}  # units by card and uid

    def free(self, card: str) -> int:
        return self.room - sum(self.pods[card].values())

    def book(self, pod: Pod, units: int) -> None:
        self.pods[pod.annotations["card"]][pod.uid] = units

    def release(self, pod: Pod) -> None:
        self.pods.get(pod.annotations.get("card", ""), {}).pop(pod.uid, None)
