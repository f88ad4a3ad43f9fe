"""Jobs as futures: `concurrent.futures.Executor` over an instance.

```python
from penstock import JobExecutor

with JobExecutor() as executor:
    futures = [executor.submit(["app", str(n)], ntasks=4, duration=600) for n in range(1000)]
    codes = [future.result() for future in futures]
```

It runs jobs, not Python callables. It needs no third-party package.
"""

from penstock.errors import JobException
from penstock.executor.executor import JobExecutor
from penstock.executor.future import EVENTS, JobFuture

__all__ = ["EVENTS", "JobException", "JobExecutor", "JobFuture"]
