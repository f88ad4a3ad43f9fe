"""`penstock web` without its packages: the command line needs them for this verb only."""

from __future__ import annotations

import subprocess
import sys

import pytest

PACKAGES = ("hypercorn", "jinja2", "starlette", "trio")


def run(code: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-I", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_missing_package_is_named_with_a_hint(package):
    done = run(
        f"sys.modules['{package}'] = None; import penstock.cli as c; sys.exit(c.main(['web']))"
    )
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == f"penstock web: the package {package} is not installed"
    assert lines[1:] == ["hint: pip install 'penstock-hpc[web]'"]


def test_help_imports_none_of_them():
    code = "import penstock.cli as c; c.main(['web', '--help']); print(*sys.modules, sep='\\n')"
    done = run(code)
    assert "usage: penstock web" in done.stdout
    assert not set(PACKAGES) & set(done.stdout.splitlines())
