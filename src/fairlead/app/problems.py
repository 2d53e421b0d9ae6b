"""What is wrong now, by topic, for `status`; each new problem is a fact in the journal."""

from __future__ import annotations

from fairlead.model.ports import Record


class Problems(dict[str, str]):
    def __init__(self, record: Record) -> None:
        super().__init__()
        self._record = record

    def note(self, topic: str, problem: str) -> None:
        """An empty problem: the topic has none any more."""
        if not problem:
            self.pop(topic, None)
        elif self.get(topic) != problem:
            self[topic] = problem
            self._record("problem", topic=topic, reason=problem)
