"""Workloads replayed in virtual time by the engine that schedules in production.

`penstock sim` on the command line; `docs/simulation.md` tells of formats, rules and metrics. The
modules: `workload` (traces and models of them), `machine` (what the jobs run on), `failures`,
`runs` (the simulation itself), `table`, `files` and `report` (what came of it), `plot` (charts).
"""
