"""Directories that an instance uses: no other user may replace or change their files.

A path is checked from the root on. The parents of a directory that passes cannot be changed by
others, so the next check of the path is about the same directory, and nothing needs to stay open.
"""

from __future__ import annotations

import fcntl
import grp
import os
import pwd
import stat
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import StartError
from penstock.instance.kind import USE_OF_JOBS, InstanceKind

if TYPE_CHECKING:
    from collections.abc import Iterator

# The database of jobs in a state directory.
DATABASE = "jobs.sqlite"
# The file of a state directory with the kind of the instance that uses it.
KIND_FILE = "kind"

# Types in /proc/self/mountinfo. Other hosts can change their files without this one's knowledge.
NETWORK_FILE_SYSTEMS = frozenset(
    "9p afs beegfs ceph cifs coda fuse.beegfs fuse.ceph fuse.glusterfs fuse.sshfs gfs2 gpfs lustre"
    " ncpfs nfs nfs4 ocfs2 orangefs panfs pvfs2 smb2 smb3 smbfs virtiofs wekafs".split()
)
# As many as Linux follows in one path.
MAX_SYMBOLIC_LINKS = 40


def check_private(directory: Path, uid: int, option: str) -> None:
    """Checks that a directory is a user's own, and that no other user can write to it.

    Args:
        directory: an existing directory.
        uid: the user.
        option: the option that names another one.

    Raises:
        StartError: it is not.
    """
    with _opened(directory, uid, option) as descriptor:
        status = os.fstat(descriptor)
    if status.st_uid != uid:
        raise _untrusted(directory, f"it belongs to user {status.st_uid}, not to {uid}", option)
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _untrusted(directory, "other users can write to it", option)


def check_trusted(directory: Path, uid: int, option: str) -> None:
    """Checks that no other user can replace what a user makes in a directory.

    Directory, parents and symbolic links belong to the user or to root, and no other user can write
    there, except in directories with the sticky bit such as `/tmp`.

    Args:
        directory: an existing directory.
        uid: the user.
        option: the option that names another one.

    Raises:
        StartError: another user can.
    """
    with _opened(directory, uid, option):
        pass


@contextmanager
def _opened(directory: Path, uid: int, option: str) -> Iterator[int]:
    """Opens a directory that passes `check_trusted`: each part of its path below the one before.

    A part is checked by its descriptor: its name may be that of another file a moment later.
    """
    with ExitStack() as stack:

        def opened(name: str, below: int | None = None) -> tuple[int, os.stat_result]:
            flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(name, flags, dir_fd=below)
            stack.callback(os.close, descriptor)
            return descriptor, os.fstat(descriptor)

        root, status = opened("/")
        # In a user namespace root can have another number.
        trusted = {0, uid, status.st_uid}
        _check_one(Path("/"), status, trusted, option)
        links = 0
        # The directories on the path, the last one being that in which the next name is.
        chain = [(Path("/"), root)]
        rest = list(reversed(directory.absolute().parts[1:]))
        while rest:
            name = rest.pop()
            parent, below = chain[-1]
            if name == "..":
                chain = chain[:-1] or chain
                continue
            path = parent / name
            descriptor, status = opened(name, below)
            if not stat.S_ISLNK(status.st_mode):
                _check_one(path, status, trusted, option)
                chain.append((path, descriptor))
                continue
            links += 1
            if links > MAX_SYMBOLIC_LINKS:
                raise _untrusted(path, "too many symbolic links", option)
            if status.st_uid not in trusted:
                problem = f"it is a symbolic link of user {status.st_uid}"
                raise _untrusted(path, problem, option)
            target = Path(os.readlink("", dir_fd=descriptor))
            if target.is_absolute():
                chain = chain[:1]
            rest += reversed([part for part in target.parts if part != "/"])
        yield chain[-1][1]


def check_local(directory: Path, mounts: str) -> None:
    """Checks that a directory is not on a network file system, on which SQLite's log does not work.

    Args:
        directory: an existing directory.
        mounts: `/proc/self/mountinfo` (proc(5)).

    Raises:
        StartError: it is.
    """
    device = directory.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        # ID parent MAJOR:MINOR root mount-point options [tags] - type source options
        fields, _, details = line.partition(" - ")
        kind = details.partition(" ")[0]
        if fields.split()[2:3] == [number] and kind in NETWORK_FILE_SYSTEMS:
            raise StartError(
                f"state directory `{directory}` is on a network file system ({kind}), which does "
                "not keep a database safe\nhint: give one on a local disk with `--state DIR`"
            )


@contextmanager
def lock_state(state: Path, hint: str) -> Iterator[None]:
    """Locks a state directory for the length of the block.

    The lock is on the directory itself: a file with the lock could be removed and made again.

    Args:
        state: the state directory.
        hint: what to do if it is locked.

    Raises:
        StartError: an instance holds the lock.
    """
    descriptor = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartError(
                f"state directory `{state}` is in use by another instance\nhint: {hint}"
            ) from None
        yield
    finally:
        os.close(descriptor)


def claim_kind(state: Path, kind: InstanceKind, *, any_state: bool) -> None:
    """Checks that a state directory is of an instance of this kind, and records the kind in it.

    Args:
        state: the state directory, which this instance has locked.
        kind: the kind of the instance.
        any_state: it may be of another kind, and is of this one from now on.

    Raises:
        StartError: it is of an instance of another kind.
    """
    path = state / KIND_FILE
    with suppress(FileNotFoundError):
        found = path.read_text(errors="replace").strip()
        if found == kind:
            return
        if not any_state:
            raise StartError(
                f"state directory `{state}` is of {_describe(found)}; "
                f"this one {USE_OF_JOBS[kind]}\n"
                "hint: name another one with `--state DIR`, or take over its pending jobs with "
                "`--any-state`"
            )
    written = path.with_name(f"{KIND_FILE}.new")
    written.write_text(f"{kind}\n")
    written.replace(path)


def _describe(kind: str) -> str:
    for known, use in USE_OF_JOBS.items():
        if kind == known:
            return f"an instance that {use}"
    return f"an instance of an unknown kind, `{kind[:40]}`"


def _check_one(path: Path, status: os.stat_result, trusted: set[int], option: str) -> None:
    if not stat.S_ISDIR(status.st_mode):
        raise _untrusted(path, "it is not a directory", option)
    if status.st_uid not in trusted:
        raise _untrusted(path, f"it belongs to user {status.st_uid}", option)
    if status.st_mode & stat.S_ISVTX:
        return
    if status.st_mode & stat.S_IWOTH:
        raise _untrusted(path, "other users can write to it", option)
    if status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid, trusted):
        raise _untrusted(path, f"group {status.st_gid} can write to it", option)


def _is_private_group(gid: int, trusted: set[int]) -> bool:
    """Whether a group has no other members than trusted users: root's, or a user's own one.

    The directories of users with umask 002 can be written by their group, which has their own name.
    A directory service need not list all users of a group: with another name it may have others.
    """
    if gid == 0:
        return True
    try:
        group = grp.getgrgid(gid)
        owner = pwd.getpwnam(group.gr_name)
        members = {pwd.getpwnam(name).pw_uid for name in group.gr_mem}
    except KeyError:
        return False
    members |= {user.pw_uid for user in pwd.getpwall() if user.pw_gid == gid}
    return owner.pw_uid in trusted and members <= trusted


def _untrusted(path: Path, problem: str, option: str) -> StartError:
    return StartError(
        f"directory `{path}` cannot be trusted: {problem}\nhint: give another one with `{option}`"
    )
