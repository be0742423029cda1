"""Where the kernel's SQL lies on disk, and in which order it is loaded.

The kernel is `sql/`, `triggers/` and `migrations/`. In a checkout they stand at the root of the repository;
an installed wheel carries them as `underseal/_kernel`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import underseal

_PACKAGE = Path(underseal.__path__[0])


@dataclass(frozen=True)
class Kernel:
    """The files one version of the kernel is made of.

    Parameters:
        root: the directory that holds `sql/`, `triggers/` and `migrations/`.
    """

    root: Path

    @property
    def migrations(self) -> Path:
        """The Alembic directory: `env.py` and `versions/`."""
        return self.root / "migrations"

    @property
    def manifest(self) -> Path:
        """The list of repeatable files: one path a line relative to the root; `#` starts a comment."""
        return self.root / "sql" / "manifest.txt"

    def repeatables(self) -> list[Path]:
        """The files with functions, views and triggers, in the order in which they are loaded.

        Errors:
            ValueError: the manifest names a file twice or names a missing one.
        """
        lines = (line.partition("#")[0].strip() for line in self.manifest.read_text().splitlines())
        names = [line for line in lines if line]
        for problem, wrong in (
            ("named twice", {name for name in names if names.count(name) > 1}),
            ("named but not on disk", {name for name in names if not (self.root / name).is_file()}),
        ):
            if wrong:
                raise ValueError(f"{self.manifest}: {problem}: {', '.join(sorted(wrong))}")
        return [self.root / name for name in names]

    def digest(self, revision: str) -> str:
        """SHA-256 over the repeatables, their names and order, and the revision they were written for.

        Parameters:
            revision: the Alembic revision the tables are at.
        """
        digest = hashlib.sha256(revision.encode())
        for path in self.repeatables():
            body = path.read_bytes()
            digest.update(f"\n{path.relative_to(self.root).as_posix()} {len(body)}\n".encode())
            digest.update(body)
        return digest.hexdigest()


def installed_kernel() -> Kernel:
    """The kernel that belongs to this copy of the package: the wheel's own, else the checkout's.

    Errors:
        FileNotFoundError: neither is there, so the package was copied without its SQL.
    """
    for root in (_PACKAGE / "_kernel", _PACKAGE.parent.parent):
        if (root / "sql" / "manifest.txt").is_file():
            return Kernel(root)
    raise FileNotFoundError(
        f"no sql/manifest.txt in {_PACKAGE / '_kernel'} nor in {_PACKAGE.parent.parent}: "
        "install underseal from a wheel, or run it from a checkout"
    )
