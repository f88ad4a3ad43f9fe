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
inactive-age-limit = "7d"          # inactive jobs are kept this long,
inactive-num-limit = 100000        # and this many of them
[job-manager.prolog]
command = ["/etc/penstock/prolog"] # runs before a job starts; epilog: after its end
timeout = "1m"                     # 0: no limit

[penstock.scheduler]
mode = "inside"                    # or "process", "none"
policy = "easy"                    # or "fcfs", "conservative", "hybrid:N"
[compat]
exec_hello = "replace"             # or "reject": a second execution service while jobs run
```

An unknown key is an error that names it. The keys are the fields of the dataclasses in
`penstock.config.tables`, with `_` or `-` between the words; `docs/configuration.md` describes each.
A limit of -1 (or a duration of 0) is no limit: in a queue it overrides the general one.
"""

from penstock.config.declaration import Constraint, Count, Seconds
from penstock.config.tables import (
    Access,
    Amounts,
    Compat,
    Config,
    Defaults,
    ElasticLimits,
    ElasticSettings,
    ExecSettings,
    Hook,
    HostEntry,
    JobElasticLimits,
    JobManagerSettings,
    JobSize,
    JobspecPolicy,
    Limits,
    Penstock,
    Policy,
    Queue,
    QueueSettings,
    Quota,
    Resource,
    SchedulerSettings,
    StoreSettings,
    System,
    manager_settings,
    scheduler_settings,
)
from penstock.config.toml import document, from_dict, load, parse, to_toml
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
    "ElasticLimits",
    "ElasticSettings",
    "ExecSettings",
    "Hook",
    "HostEntry",
    "JobElasticLimits",
    "JobManagerSettings",
    "JobSize",
    "JobspecPolicy",
    "Limits",
    "Penstock",
    "Policy",
    "Queue",
    "QueueSettings",
    "Quota",
    "Resource",
    "SchedulerSettings",
    "Seconds",
    "StoreSettings",
    "System",
    "document",
    "from_dict",
    "load",
    "manager_settings",
    "parse",
    "scheduler_settings",
    "to_toml",
]
