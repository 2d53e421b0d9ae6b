"""Settling: what follows when the kubelet has shown who has what. Marks, exchanged promises, and reports.

Owns what pods are going to say. What is right and what is wrong is decided in `policy.reconcile`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from fairlead.app.book import Book, Texts
from fairlead.app.marking import Marker
from fairlead.kubelet.service import Record
from fairlead.model.assign import Assign
from fairlead.model.errors import some
from fairlead.model.names import DeviceId
from fairlead.model.pod import Pod
from fairlead.policy.assign import is_astray
from fairlead.policy.exchange import Promise
from fairlead.policy.promise import Form, Seeker, write_actual, write_plan
from fairlead.policy.reconcile import Holder, Outcome

Pods = Mapping[str, Pod]


class Settler:
    def __init__(self, marker: Marker, record: Record, note: Callable[[str, str], None]) -> None:
        self.marker = marker
        self._record = record
        self._note = note
        self._promised: dict[str, Texts] = {}  # by uid: what a pod's annotations are going to say

    def seekers(self, book: Book, pods: Pods) -> tuple[Seeker, ...]:
        if self._promised and pods:
            self._promised = {uid: texts for uid, texts in self._promised.items() if uid in pods}
        return book.look_up(pods, self._promised)

    def settle(self, book: Book, books: Iterable[Book], outcome: Outcome, pods: Pods) -> bool:
        """Whether promises were exchanged, so that there will be more to see."""
        name, words = book.resource.name, {device: word for word, device in book.names.items()}
        known = {uid: pod for uid, (pod, _, _) in book.read.items()}
        for claim in outcome.lost:
            self._record("assignment-lost", resource=name, pod=str(known.get(claim.uid)), container=claim.container)
        wrong = self._exchange(book, books, outcome.promises, words)
        exchanged = len(wrong) < len(outcome.promises)
        for seeker in outcome.done:
            self._mark(book, books, seeker, pods)
        for each in outcome.wrong:
            wrong[each.seeker.uid] = _tell_wrong(each, book.assign)
            if book.assign.actual:
                text = write_actual(book.claims.of(each.seeker.uid), words)
                self.marker.set(each.seeker.pod, {book.assign.actual: text})
                if each.seeker.open and all(each.seeker.plan):
                    self._mark(book, books, each.seeker, pods)
        wrong |= {each.seeker.uid: _tell_unknown(each, book.assign) for each in outcome.unknown}
        for seeker, uid in outcome.mistaken if book.names_pods else ():
            whose = known.get(uid, "a pod that is gone")
            has = wrong.get(seeker.uid)
            told = f"was told the name and annotations of {whose}, which asked for as much"
            wrong[seeker.uid] = f"{has}; {seeker.pod} {told}" if has else f"{seeker.pod} {told}"
        self._take_back(book, wrong)
        for uid, text in wrong.items():
            if book.wrong.get(uid) != text:
                self._record("assignment-wrong", resource=name, reason=text)
        book.wrong = wrong
        all_wrong = "; ".join(wrong.values())
        self._note(f"assign {name}", f"{all_wrong}. Delete the pod, so that it is admitted anew" if all_wrong else "")
        self._tell_strangers(book, outcome.strangers)
        return exchanged

    def _exchange(
        self, book: Book, books: Iterable[Book], promises: Sequence[Promise], words: Mapping[DeviceId, str]
    ) -> dict[str, str]:
        """Orders the new promises. Returns, by uid, what cannot be written."""
        wrong: dict[str, str] = {}
        for promise in promises:
            pod = promise.seeker.pod
            texts = write_plan(promise.seeker, promise.plan, book.assign, words)
            if texts is None:
                wrong[pod.uid] = _tell_wrong(promise, book.assign)
                continue
            self._promised[pod.uid] = texts
            for other in books:
                other.seen = None
            before, after = pod.annotations.get(book.assign.device, ""), ",".join(words[d] for d in promise.devices)
            self._record(
                "assignment-swapped",
                resource=book.resource.name,
                pod=str(pod),
                before=before,
                after=after,
                other=promise.partner,
            )
            self.marker.set(pod, texts)
        return wrong

    def _take_back(self, book: Book, wrong: Mapping[str, str]) -> None:
        """What was written about pods that have what they were promised after all."""
        for seeker in book.seekers if book.assign.actual else ():
            mine = book.claims.of(seeker.uid)
            known = seeker.uid not in wrong and mine and all(claim.sure for claim in mine)
            if known and seeker.actual and not is_astray(seeker, book.claims):
                self.marker.set(seeker.pod, {book.assign.actual: ""})

    def _mark(self, book: Book, books: Iterable[Book], seeker: Seeker, pods: Pods) -> None:
        if seeker.uid not in book.marked and not self._lacks_more(book, books, seeker.uid, pods):
            book.marked.add(seeker.uid)
            self.marker.set(seeker.pod, book.assign.marks)

    def _lacks_more(self, book: Book, books: Iterable[Book], uid: str, pods: Pods) -> bool:
        """Whether the pod asks for another resource that the same annotation speaks of, and has not got it yet."""
        others = [o for o in books if o is not book and o.assign.assigned == book.assign.assigned != ""]
        return any(s.uid == uid and s.next(o.claims) is not None for o in others for s in self.seekers(o, pods))

    def _tell_strangers(self, book: Book, strangers: Sequence[Holder]) -> None:
        name = book.resource.name
        for namespace, pod, container in sorted(set(strangers) - book.strangers):
            self._record("assignment-stranger", resource=name, pod=f"{namespace}/{pod}", container=container)
        book.strangers = frozenset(strangers)
        pods = some(sorted({f"{namespace}/{pod}" for namespace, pod, _ in strangers}), 3)
        told = f"{pods}: the kubelet lists {name} for it, and the API server has no such pod"
        self._note(f"strangers {name}", told if pods else "")


def _tell_wrong(each: Promise, assign: Assign) -> str:
    seeker, has = each.seeker, f"{each.seeker.pod} has {', '.join(each.devices)}"
    if not all(seeker.plan):
        return f"{has}, and was promised nothing that can be read"
    key = assign.per_container if seeker.form is Form.EACH else assign.device
    return f"{has}, and was promised {seeker.pod.annotations.get(key, '')}"


def _tell_unknown(each: Promise, assign: Assign) -> str:
    promised = each.seeker.pod.annotations.get(assign.device, "")
    return (
        f"which device {each.seeker.pod} has is not known: its ids are of {', '.join(each.devices)}, "
        f"and its annotation {assign.device} says {promised!r:.60}. Both count as taken"
    )
