"""Instances for tests: one in memory with simulated execution, and a fake one that is scripted.

`MemoryInstance` is a whole instance in this process: its own scheduler and job manager, a store in
memory, jobs that are simulated, and a clock that a test moves. It needs the packages of
`penstock-hpc[daemon]`. `FakeBroker` answers requests as a test says, and needs none.
"""

from penstock.testing.fakebroker import FakeBroker

# `typing` and Trio would be most of what the import costs.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from penstock.testing.memoryinstance import MemoryInstance
else:

    def __getattr__(name):  # noqa: ANN001, ANN202 - for readers of the code, the import above
        """Imports a name on its first use."""
        if name == "MemoryInstance":
            from penstock.testing.memoryinstance import MemoryInstance

            return MemoryInstance
        raise AttributeError(f"module `penstock.testing` has no attribute `{name}`")


__all__ = ["FakeBroker", "MemoryInstance"]
