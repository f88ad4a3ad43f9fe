"""The services `resource` and `groups` at the daemon's edge; the resource module does the work.

`groups.get` is served here as well, because the resource module knows who is online.
"""

from __future__ import annotations

import errno
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock._core import ResourceModule
from penstock.errors import RequestError
from penstock.instance.failure import Failure
from penstock.instance.requests import rejections
from penstock.instance.restart import Restarts

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock._core import Batch, IDset, JobManager, ResourceSet
    from penstock.config import Resource
    from penstock.instance.broker import Broker

log = logging.getLogger("penstock")


class ResourceService:
    """Hands requests to the resource module and posts its responses.

    Args:
        broker: the broker.
        manager: the job manager, which performs the module's effects: its store has the resource
            eventlog.
        resources: the resources with which the instance was started.
        config: the configuration's `[resource]`.
        executable: the ranks on which this instance can execute jobs; None for any.
        has_store: whether the job manager can perform the effects, or rejects them.

    Raises:
        TargetError: the configuration names hosts that are not there, or the inventory has grown
            to ranks that are not executable.
    """

    peer: int
    NAMES = ("resource", "groups")

    def __init__(
        self,
        broker: Broker,
        manager: JobManager,
        resources: ResourceSet,
        config: Resource,
        executable: IDset | None = None,
        has_store: Callable[[], bool] = lambda: True,
    ) -> None:
        self._broker = broker
        self._manager = manager
        self._base = resources
        self._config = config
        self._executable = executable
        self._has_store = has_store
        self._rebuild()
        self.restarts = Restarts(
            broker, self, self.NAMES, rebuild=self._rebuild, in_memory=True, answer_on_failure=True
        )
        self.restarts.start()

    def _rebuild(self) -> None:
        """Builds the resource module from the resource eventlog."""
        self._module = ResourceModule(
            self._manager,
            self._base,
            exclude=self._config.exclude,
            properties=self._config.properties,
            executable=self._executable,
            now=self._broker.clock.now(),
        )

    def restart(self) -> None:
        """Tells the job manager what may be allocated."""
        self.post_output(self._broker.clock.now())

    @property
    def resources(self) -> ResourceSet:
        """The inventory, excluded targets included."""
        return self._module.resources

    def deliver(self, batch: Batch) -> None:
        """Serves requests."""
        if not self._has_store():
            # The changes would be lost when the job manager is built again.
            responses = rejections(batch, errno.EIO, "the job manager has failed")
            self._broker.post_messages(self.peer, responses)
            return
        # The job manager has output to post, too: it allocates these resources.
        self._broker.nudge()
        self._module.handle(batch, self._broker.clock.now())

    def post_output(self, now: float) -> None:
        """Posts the responses. The changes that they report are in the store's open transaction."""
        batch, lines = self._module.take_output()
        self._broker.post(self.peer, batch)
        for line in lines:
            log.warning("%s", line)

    def withhold(self, fault: BaseException) -> None:
        """Posts errors in place of the responses: the job manager has failed, with the changes."""
        if self.restarts.failed:
            # The broker has answered the requests.
            return
        with suppress(RequestError), self._broker.guard(self.peer):
            batch, _ = self._module.take_output()
            failure = Failure.of(fault)
            self._broker.post(self.peer, batch.errors_in_place(failure.errnum, failure.text))

    def reconfigure(self, config: Resource) -> None:
        """Applies another configuration of exclusion and properties.

        Raises:
            TargetError: it names hosts that are not there. Nothing has changed then.
            RequestError: the resource module has failed.
        """
        with self._broker.guard(self.peer):
            self._module.configure(config.exclude, config.properties, self._broker.clock.now())
        self._config = config
        self._broker.nudge()
