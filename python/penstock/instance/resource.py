"""The services `resource` and `groups` at the daemon's edge; the resource module does the work.

`groups.get` is served here as well, because the resource module knows who is online.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock._core import ResourceModule
from penstock.instance.restart import Restarts

if TYPE_CHECKING:
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
    ) -> None:
        self._broker = broker
        self._manager = manager
        self._base = resources
        self._config = config
        self._executable = executable
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
        # The job manager has output to post, too: it allocates these resources.
        self._broker.nudge()
        self._module.handle(batch, self._broker.clock.now())

    def post_output(self, now: float) -> None:
        """Posts the responses. The changes that they report are in the store's open transaction."""
        batch, lines = self._module.take_output()
        self._broker.post(self.peer, batch)
        for line in lines:
            log.warning("%s", line)

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
