"""The directory of a run: whether it holds one, and the claim of the launch that uses it.

Asked on each machine before anything is started there, so it imports little.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from launch.user_errors import CommandError

__all__ = ["claimed", "used"]

_LOCK = ".launch.lock"
#: What file systems without locks say.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def used(run_dir: Path) -> bool:
    """Whether peers have written into a directory. One that is empty, or holds other things, can be a run's."""
    return any(run_dir.glob("rank-*"))


@contextmanager
def claimed(run_dir: Path) -> Iterator[bool]:
    """Make the directory and keep it to this process; yield whether that worked, or another launch has it.

    The kernel ends the claim with the process. A launch that fails before it has written anything leaves no directory.

    Raises:
        CommandError: nothing can be written there.
    """
    made = [path for path in (run_dir, *run_dir.parents) if not path.exists()]
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(run_dir / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        file = isinstance(error, FileExistsError | NotADirectoryError)
        reason = "there is a file in its place" if file else error.strerror or str(error)
        raise CommandError(
            f"cannot write to the run directory {run_dir}: {reason}; choose another --run-dir"
        ) from error
    try:
        yield _locked(descriptor)
    except BaseException:
        with suppress(OSError):
            if made and [path.name for path in run_dir.iterdir()] == [_LOCK]:
                (run_dir / _LOCK).unlink()
                for path in made:
                    path.rmdir()
        raise
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True
