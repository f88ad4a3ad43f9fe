"""`Commits`: commits the store, and holds messages that may tell its changes until then.

If the disk is slow, messages wait for the end of a sync, and rounds follow meanwhile: their changes
are committed next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock._core import Histogram
from penstock.instance.supervision import FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock._core import Batch
    from penstock.clock import Clock
    from penstock.instance.connection import Connection


@dataclass(frozen=True)
class Store:
    """The store, which makes changes durable before messages leave; by default there is none.

    Attributes:
        peer: the service that writes to the store. When it has failed, nothing is committed.
        commit: makes its changes durable, and returns whether there were any. If it raises, the
            service has failed.
        is_syncing: whether the changes of the last commit are durable only at the end of a sync
            that a thread makes.
        finish_sync: waits for that end. If it raises, the service has failed.
    """

    peer: int = 0
    commit: Callable[[], bool | None] = lambda: False
    is_syncing: Callable[[], bool] = lambda: False
    finish_sync: Callable[[], object] = lambda: None


class Commits:
    """The commits of the store, and the messages held for them.

    Args:
        clock: the time.
        posted: the posted messages that are still to be routed, by sender.
        on_failure: called with the fault when a commit has failed.

    Attributes:
        store: what is committed.
        durations: of commits until they are durable, in seconds.
    """

    def __init__(
        self,
        clock: Clock,
        posted: Callable[[], Iterable[tuple[int, Batch]]],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._clock = clock
        self._posted = posted
        self._on_failure = on_failure
        self.store = Store()
        self.durations = Histogram()
        # The posted batches that tell nothing uncommitted, by `id`.
        self._committed: dict[int, Batch] = {}
        # Connections with queued messages that may tell what is not committed.
        self._unflushed: set[Connection] = set()
        # Whether the last commit is being synced, and connections with messages that wait for it.
        self._is_syncing = False
        self._syncing: set[Connection] = set()
        # The batches that were posted before it, by `id`.
        self._posted_before_sync: dict[int, Batch] = {}
        self._began = 0.0

    @property
    def is_syncing(self) -> bool:
        """Whether the last commit is being synced: the next one follows."""
        return self._is_syncing

    @property
    def is_due(self) -> bool:
        """Whether queued messages wait for a commit."""
        return bool(self._unflushed)

    def add(self, remote: Connection) -> None:
        """Has the queued messages of a connection wait for the next commit."""
        self._unflushed.add(remote)

    def remove(self, remote: Connection) -> None:
        """Forgets a connection that has ended."""
        self._unflushed.discard(remote)
        self._syncing.discard(remote)

    def holds(self, remote: Connection) -> bool:
        """Whether messages to a connection wait for a commit."""
        return remote in self._unflushed or remote in self._syncing

    def is_committed(self, batch: Batch) -> bool:
        """Whether a posted batch tells nothing uncommitted."""
        return id(batch) in self._committed

    def take_committed(self, batch: Batch) -> bool:
        """The same of a batch that is being routed, which is not asked about again."""
        return self._committed.pop(id(batch), None) is not None

    def commit(self) -> None:
        """Commits the changes of this round, or leaves that to the end of the sync under way.

        If that fails, no message of the round that could tell the changes is sent, the requests to
        be answered by one are answered with the error, and the service that writes to the store has
        failed. If the disk is slow, such messages wait for the end of a sync, and rounds follow
        meanwhile.
        """
        if self._is_syncing:
            self._unflushed = {each for each in self._unflushed if each.flush_committed()}
            return
        self._began = self._clock.monotonic()
        try:
            has_changed = self.store.commit()
        except FAULTS as error:
            self._on_failure(error)
            return
        if self.store.is_syncing():
            self._is_syncing = True
            self._syncing = {each for each in self._unflushed if each.hold_for_sync()}
            self._unflushed.clear()
            self._posted_before_sync = self._posted_batches()
            return
        if has_changed:
            self._observe()
        self._committed = self._posted_batches()
        # Services first: they act on their requests while clients read their responses.
        for remote in sorted(self._unflushed, key=lambda remote: remote.is_client):
            remote.flush()
        self._unflushed.clear()

    def commit_durably(self) -> None:
        """Commits the changes so far, and waits until they are durable."""
        self._finish_sync()
        self.commit()
        self._finish_sync()

    def end_sync(self) -> None:
        """Sends the messages held for the sync of the last commit, and commits later changes.

        Waits for the end of the sync.
        """
        if self._is_syncing:
            self._finish_sync()
            self.commit()

    def _finish_sync(self) -> None:
        try:
            self.send_synced()
        except FAULTS as error:
            self._on_failure(error)

    def send_synced(self) -> None:
        """Waits for the end of the sync under way, if there is one, and sends the held messages.

        Raises:
            Exception: the sync has failed.
        """
        if not self._is_syncing:
            return
        self._is_syncing = False
        self.store.finish_sync()
        self._observe()
        before, self._posted_before_sync = self._posted_before_sync, {}
        self._committed = {
            key: each for key, each in self._posted_batches().items() if key in before
        }
        syncing, self._syncing = self._syncing, set()
        for remote in sorted(syncing, key=lambda remote: remote.is_client):
            remote.flush_synced()

    def abandon(self) -> None:
        """Commits nothing any longer: the store has failed, and no message is held for it."""
        self._unflushed.clear()
        self._syncing.clear()
        self.store = Store()

    def _posted_batches(self) -> dict[int, Batch]:
        return {id(batch): batch for _, batch in self._posted()}

    def _observe(self) -> None:
        self.durations.observe(self._clock.monotonic() - self._began)
