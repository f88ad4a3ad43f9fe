"""Limits of what a user names: beyond them it is a mistake that would need all memory."""

from __future__ import annotations

# The text of a configuration, or of an R, in bytes. A device such as `/dev/zero` has no end.
MAX_TEXT_BYTES = 256 << 20
# Nodes of an R, or simulated ones.
MAX_NODES = 10_000_000
# Hosts of a configuration.
MAX_HOSTS = 1_000_000
# Cores, or gpus, of a host of a configuration.
MAX_IDS = 1_000_000
