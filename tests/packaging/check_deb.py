"""Installs the Debian package into a copy of this system, and runs a job with its daemon there.

The copy is an overlay of the root directory, in a namespace of mounts of its own: nothing of it is
left. It needs root and a system with dpkg. `make test-deb` runs it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

# Within the namespace: $1 is a folder, $2 the package.
INSTALL = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cp "$2" "$1/root/tmp/penstock.deb"
mount --rbind /proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
mount -t tmpfs tmpfs "$1/root/run"
# Of the Python of Debian alone; dependencies are those of the machine.
chroot "$1/root" dpkg --force-depends --install /tmp/penstock.deb
chroot "$1/root" /bin/sh -c "$3"
"""
# Within the copy, without this machine's PATH.
CHECK = """
set -e
export PATH=/usr/bin:/bin HOME=/root LC_ALL=C.UTF-8
cd /
penstock --version
test -d /etc/penstock/conf.d
test -f /usr/share/man/man1/penstock-submit.1
grep -q 'ExecStart=/usr/bin/penstock start' /usr/lib/systemd/system/penstock.service
grep -q 'ExecStart=/usr/bin/penstock exec' /usr/lib/systemd/user/penstock-exec.service
# The command lines of the units, by hand.
command_of() { sed -n 's/^ExecStart=//p' "/usr/lib/systemd/system/$1"; }
export PENSTOCK_URI=local:///run/penstock/socket
mkdir -p /run/penstock /var/lib/penstock
chmod 700 /var/lib/penstock
mkfifo /tmp/ready
# This shell keeps the FIFO open, too.
exec 3<> /tmp/ready
$(command_of penstock.service) -v 2>&3 &
daemon=$!
grep -m1 'sched: ready' <&3 > /dev/null
$(command_of penstock-exec.service) &
service=$!
penstock run sh -c 'echo ran as $(id -un)' < /dev/null
penstock stop
wait "$daemon"
kill "$service"
wait "$service" || true
PATH=/usr/sbin:/sbin:$PATH dpkg --remove penstock
test ! -e /usr/bin/penstock
"""


def main() -> None:
    """Checks the package that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", type=Path)
    package = parser.parse_args().package.resolve(strict=True)
    if os.geteuid() != 0:
        sys.exit("expected to run as root")
    with tempfile.TemporaryDirectory() as folder:
        command = ["unshare", "--mount", "sh", "-c", INSTALL, "sh", folder, package, CHECK]
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    print(done.stdout, end="")
    if done.returncode != 0 or "ran as root\n" not in done.stdout:
        sys.exit(f"{package.name}: failed with {done.returncode}")
    print(f"{package.name}: installed; ran a job; removed")


if __name__ == "__main__":
    main()
