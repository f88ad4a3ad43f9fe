"""`main` of ClusterShell's `nodeset` as our verb, for ClusterShell's own tests of it."""

from __future__ import annotations

import io
import sys

from penstock.cli import main as penstock


def main():
    stderr, sys.stderr = sys.stderr, io.StringIO()
    try:
        code = penstock(["nodeset", *sys.argv[1:]])
    finally:
        # Errors of ours begin with the program's name, as those of every verb do.
        text, sys.stderr = sys.stderr.getvalue(), stderr
        stderr.write(text.replace("penstock nodeset: ", "ERROR: "))
    sys.exit(code)
