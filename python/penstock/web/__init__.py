"""The pages of `penstock web`: an instance in a browser.

`server` listens, `guard` decides who may read, `view` reads the instance for one reader, `pages`
answers requests, `live` reports changes. `figures`, `charts` and `machine` compute without
input or output. It needs the extra `[web]`; only the verb imports it.
"""
