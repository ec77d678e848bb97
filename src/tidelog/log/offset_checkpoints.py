"""The offset checkpoints of one log directory, and what the disk may say at any moment.

High watermarks, recovery points and log start offsets are written now and then, as a whole, with
sync. While a write is under way the disk says the old or the new; `highest` is the larger one. A
partition that is cut, or made anew under an old name, must not be contradicted by what is on disk:
`lower` writes first and tells when it is safe to go on; many at once share one write (V34, V38).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tidelog.core.completion import Completion
from tidelog.core.ports import Files, Lane, Work
from tidelog.core.types import TopicPartition
from tidelog.log.checkpoints import format_offsets


class OffsetCheckpoint:
    """One checkpoint file. Loop only."""

    __slots__ = ("_failed", "_in_flight", "_lane", "_lowered", "_lowering", "_path", "offsets")

    def __init__(
        self,
        lane: Lane,
        path: str,
        offsets: dict[TopicPartition, int],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._lane = lane
        self._path = path
        self._failed = failed
        #: What was submitted last; on disk once nothing is in flight.
        self.offsets = offsets
        #: What the disk may still say: contents before writes that are under way.
        self._in_flight: list[dict[TopicPartition, int]] = []
        #: To be lowered by the next write, and who waits for it.
        self._lowered: dict[TopicPartition, int] = {}
        self._lowering: Completion[None] | None = None

    def highest(self, topic_partition: TopicPartition) -> int:
        """The largest offset that the disk may have for a partition, -1 for none."""
        highest = self.offsets.get(topic_partition, -1)
        for offsets in self._in_flight:
            highest = max(highest, offsets.get(topic_partition, -1))
        return highest

    def lowest(self, topic_partition: TopicPartition) -> int:
        """The smallest offset that the disk may have for a partition, -1 for none."""
        contents = [self.offsets, *self._in_flight]
        return min(offsets.get(topic_partition, -1) for offsets in contents)

    def write(self, offsets: Mapping[TopicPartition, int]) -> Completion[None]:
        """Replace the file's content, durably."""
        new = dict(offsets)
        _lower(new, self._lowered)
        before = self.offsets
        self._in_flight.append(before)
        self.offsets = new
        path = self._path

        def replace(files: Files) -> None:
            files.replace_file(path, format_offsets(new), sync=True)

        completion: Completion[None] = Completion()

        def written(done: Completion[None]) -> None:
            if done.error is not None:
                # Either may be there; a later write that succeeds settles it.
                self._failed(done.error)
                completion.fail(done.error)
            else:
                # Writes keep their order: earlier contents are gone too.
                while self._in_flight and self._in_flight.pop(0) is not before:
                    continue
                completion.resolve(None)

        self._lane.submit(replace, Work.SLOW, "checkpoint").then(written)
        return completion

    def lower(self, topic_partition: TopicPartition, offset: int) -> Completion[None]:
        """Make the disk say at most `offset` for the partition, or nothing where it is -1."""
        if self.highest(topic_partition) <= offset:
            return Completion.of(None)
        self._lowered[topic_partition] = min(offset, self._lowered.get(topic_partition, offset))
        lowering = self._lowering
        if lowering is None:
            lowering = self._lowering = Completion()
            if not self._in_flight:
                self._write_lowered()
            else:
                # Behind the write that is under way, with all that is asked for until then.
                self._lane.submit(_nothing, Work.SLOW, "wait").then(lambda _: self._write_lowered())
        return lowering

    def _write_lowered(self) -> None:
        waiting, self._lowering = self._lowering, None
        lowered, self._lowered = self._lowered, {}
        if waiting is None:
            return
        offsets = dict(self.offsets)
        _lower(offsets, lowered)

        def tell(done: Completion[None]) -> None:
            if done.error is not None:
                waiting.fail(done.error)
            else:
                waiting.resolve(None)

        self.write(offsets).then(tell)


def _lower(offsets: dict[TopicPartition, int], lowered: dict[TopicPartition, int]) -> None:
    for topic_partition, offset in lowered.items():
        if offset < 0:
            offsets.pop(topic_partition, None)
        elif offsets.get(topic_partition, -1) > offset:
            offsets[topic_partition] = offset


def _nothing(files: Files) -> None:
    """Only its turn matters."""


def after_all(
    completions: Sequence[Completion[None]], then: Callable[[BaseException | None], None]
) -> None:
    """Call `then` with the first error, or None, when all are done."""
    left = len(completions)
    first_error: BaseException | None = None

    def one(done: Completion[None]) -> None:
        nonlocal left, first_error
        left -= 1
        first_error = first_error or done.error
        if left == 0:
            then(first_error)

    if not completions:
        then(None)
    for completion in completions:
        completion.then(one)
