"""A directory that nobody else can read or write, and files in it that are whole or not there (X9)."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600

_TEMPORARY: Final = re.compile(r"\.tmp-[0-9a-f]{32}")
# A file of ours is a few hundred bytes; whatever is larger was not written by us.
_MAX_BYTES: Final = 4096
# Answers of file systems that cannot sync a directory, or need not because they are mounted read-only.
_NO_DIRECTORY_SYNC: Final = frozenset({errno.EINVAL, errno.EROFS, errno.ENOTSUP})

Signature = tuple[int, ...]
Refuse = Callable[[str], Exception]


class PrivateDirectory:
    """An open private directory. Every name is resolved relative to it, so that it cannot be swapped
    underneath.

    Parameters:
        path: where it is, for messages.
        fd: descriptor of the checked directory.
        refuse: makes the exception for a fault, from a message without secrets.
    """

    def __init__(self, path: Path, fd: int, refuse: Refuse) -> None:
        self._path = path
        self._fd = fd
        self._refuse = refuse

    @classmethod
    @contextmanager
    def open(cls, path: Path, refuse: Refuse, *, create: bool) -> Iterator[PrivateDirectory]:
        """Open and check the directory; with ``create``, make it (mode 0700) where it is missing.

        Raises:
            what ``refuse`` makes: it is missing, cannot be made, is a symbolic link, somebody else's, or its mode
            is looser than 0700.
        """
        flaw = _make(path) if create else ""
        if flaw:
            raise refuse(flaw)
        with cls._opened(path, path, None, refuse) as directory:
            yield directory

    @classmethod
    @contextmanager
    def _opened(
        cls, path: Path, name: str | Path, at: int | None, refuse: Refuse
    ) -> Iterator[PrivateDirectory]:
        fd: int | None = None
        try:
            fd = os.open(name, dir_fd=at, flags=os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            flaw = ""
        except OSError as error:
            flaw = _cannot_open(path, error)
        if fd is None:
            raise refuse(flaw)
        try:
            wrong = _looseness(path, os.fstat(fd), DIRECTORY_MODE)
            if wrong:
                raise refuse(wrong)
            yield cls(path, fd, refuse)
        finally:
            os.close(fd)

    @contextmanager
    def within(self, name: str, *, create: bool) -> Iterator[PrivateDirectory]:
        """Open and check a directory in this one, as ``open`` does; with ``create``, make it where it is missing."""
        if create:
            with suppress(FileExistsError):
                os.mkdir(name, DIRECTORY_MODE, dir_fd=self._fd)
                self.sync()
        with self._opened(self._path / name, name, self._fd, self._refuse) as directory:
            yield directory

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no other process or thread is in this block for this directory. Ends with the process, too."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _listed(self) -> list[str]:
        return os.listdir(self._fd)  # noqa: PTH208 - a path cannot be read through a descriptor

    def names(self) -> list[str]:
        """Return the names in the directory, sorted, without our own temporary files."""
        return sorted(name for name in self._listed() if not _TEMPORARY.fullmatch(name))

    def temporary_names(self) -> list[str]:
        """Return the names of temporary files: of a writer at work, or left by one that died."""
        return sorted(name for name in self._listed() if _TEMPORARY.fullmatch(name))

    def signature(self, name: str) -> Signature | None:
        """Return what changes whenever the file does, or ``None`` if it is gone."""
        try:
            found = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return (
            found.st_ino,
            found.st_size,
            found.st_mtime_ns,
            found.st_ctime_ns,
            found.st_mode,
            found.st_uid,
        )

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or ``None`` if it is gone.

        Raises:
            what ``refuse`` makes: a symbolic link, no regular file, somebody else's, looser than 0600, or too
            large.
        """
        # NONBLOCK, so that a FIFO put in the place of a file is refused and not waited for.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            fd: int | None = os.open(name, flags, dir_fd=self._fd)
            flaw = ""
        except FileNotFoundError:
            return None
        except OSError as error:
            fd, flaw = None, _cannot_open(self._path / name, error)
        if fd is None:
            raise self._refuse(flaw)
        try:
            found = os.fstat(fd)
            wrong = _looseness(self._path / name, found, FILE_MODE)
            if not wrong and not stat.S_ISREG(found.st_mode):
                wrong = f"{self._path / name} is not a regular file; remove it"
            if not wrong and found.st_size > _MAX_BYTES:
                wrong = f"{self._path / name} has {found.st_size} bytes; expected at most {_MAX_BYTES}"
            if wrong:
                raise self._refuse(wrong)
            return os.read(fd, _MAX_BYTES)
        finally:
            os.close(fd)

    def publish(self, name: str, content: bytes) -> bool:
        """Let ``name`` appear with all of ``content`` and on disk, or not at all.

        Returns:
            True if it is ours, False if the name was taken: among any number of processes exactly one gets
            True.
        """
        temporary = f".tmp-{secrets.token_hex(16)}"
        self._write_new(temporary, content)
        try:
            os.link(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            won = True
        except FileExistsError:
            won = False
        finally:
            os.unlink(temporary, dir_fd=self._fd)
        self.sync()
        return won

    def replace(self, name: str, content: bytes) -> None:
        """Let ``name`` have all of ``content`` and on disk, in the place of what it had, or leave it as it was."""
        temporary = f".tmp-{secrets.token_hex(16)}"
        self._write_new(temporary, content)
        os.rename(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        self.sync()

    def create(self, name: str, content: bytes) -> bool:
        """Take the name first and write after it; on disk when this returns.

        Returns:
            True if the name is ours, False if it was taken.
        """
        try:
            self._write_new(name, content)
            won = True
        except FileExistsError:
            won = False
        self.sync()
        return won

    def remove(self, name: str) -> None:
        """Remove a file, if it is there. Call ``sync`` when done."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._fd)

    def sync(self) -> None:
        """Put the directory itself on disk: what was created, linked or removed in it."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            if error.errno not in _NO_DIRECTORY_SYNC:
                raise

    def _write_new(self, name: str, content: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, FILE_MODE, dir_fd=self._fd)
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(fd)


def _make(path: Path) -> str:
    """Make the directory where it is missing; why it could not be made, or nothing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(DIRECTORY_MODE)
        parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileExistsError:
        return ""  # what it is, is looked at when it is opened
    except OSError as error:
        why = os.strerror(error.errno or 0)
        return (
            f"{path} cannot be made: {why}; make it as this user, with mode 0700, in a place it may write to"
        )
    try:
        os.fsync(parent)
    finally:
        os.close(parent)
    return ""


def _cannot_open(path: Path, error: OSError) -> str:
    if path.is_symlink():
        return f"{path} is a symbolic link, and links are not followed here; give the place it points to"
    if isinstance(error, FileNotFoundError):
        return f"there is no directory {path}; expected a private directory (mode 0700) of this user"
    return f"{path} cannot be opened: {os.strerror(error.errno or 0)}"


def _looseness(path: Path, found: os.stat_result, strictest: int) -> str | None:
    user = os.geteuid()
    if found.st_uid != user:
        return f"{path} belongs to user {found.st_uid}, and this process runs as {user}; run: chown {user} {path}"
    mode = stat.S_IMODE(found.st_mode)
    if mode & ~strictest:
        allowed = f"{strictest:o}"
        return (
            f"{path} has mode {mode:04o}, and 0{allowed} is the loosest allowed; run: chmod {allowed} {path}"
        )
    return None
