"""Workloads replayed in virtual time by the engine that schedules in production.

`penstock sim` on the command line; `docs/simulation.md` describes formats, rules and metrics. The
modules: `workload` (traces and models of them), `machine` (nodes), `failures`,
`runs` (the simulation itself), `table`, `files` and `report` (the results), `plot` (charts).
"""
