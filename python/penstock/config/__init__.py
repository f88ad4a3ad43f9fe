"""The configuration of an instance: TOML, under Flux's table names where one exists.

```toml
[resource]
exclude = "node[0-1]"              # never scheduled: an idset of ranks or a hostlist
[resource.properties]
fast = "node[2-3]"                 # properties, and the ranks or hosts that have them

[queues.batch]
requires = ["batch"]               # properties that a node must have
[queues.batch.policy.limits]
duration = "8h"

[policy.limits]
duration = "1d"
job-size.max.nnodes = 64
[policy.jobspec.defaults.system]
duration = "1h"
queue = "batch"

[access]
allow-guest-user = false

[job-manager]
inactive-age-limit = "7d"          # jobs that are over are kept so long,
inactive-num-limit = 100000        # and so many of them
[job-manager.prolog]
command = ["/etc/penstock/prolog"] # runs before a job starts; epilog: after it has ended
timeout = "1m"                     # 0: any time

[penstock.scheduler]
mode = "inside"                    # or "process", "none"
policy = "easy"                    # or "fcfs", "conservative", "hybrid:N"
[compat]
exec_hello = "replace"             # or "refuse": a second execution service while jobs run
```

An unknown key is an error that names it. The fields of the dataclasses below are the keys, with `_`
or with `-` between the words; `docs/configuration.md` tells of each. A limit of -1 (or a duration
of 0) is none: in a queue it takes the general one away.
"""

from penstock.config.config import (
    Access,
    Amounts,
    Compat,
    Config,
    Constraint,
    Count,
    Defaults,
    ElasticSettings,
    ExecSettings,
    Hook,
    HostEntry,
    JobManagerSettings,
    JobSize,
    JobspecPolicy,
    Limits,
    Most,
    MostOfJob,
    Penstock,
    Policy,
    Queue,
    QueueSettings,
    Resource,
    SchedulerSettings,
    Seconds,
    StoreSettings,
    System,
    from_dict,
    load,
    parse,
    scheduler_settings,
    to_toml,
)
from penstock.errors import ConfigError

__all__ = [
    "Access",
    "Amounts",
    "Compat",
    "Config",
    "ConfigError",
    "Constraint",
    "Count",
    "Defaults",
    "ElasticSettings",
    "ExecSettings",
    "Hook",
    "HostEntry",
    "JobManagerSettings",
    "JobSize",
    "JobspecPolicy",
    "Limits",
    "Most",
    "MostOfJob",
    "Penstock",
    "Policy",
    "Queue",
    "QueueSettings",
    "Resource",
    "SchedulerSettings",
    "Seconds",
    "StoreSettings",
    "System",
    "from_dict",
    "load",
    "parse",
    "scheduler_settings",
    "to_toml",
]
