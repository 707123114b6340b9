"""A disk that keeps only what was synced: processes run on it, and its power is cut."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("unsynced.c")


@dataclass(frozen=True, slots=True)
class LossyDisk:
    """A folder on which processes started with `environment` write."""

    folder: Path
    library: Path

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "LD_PRELOAD": str(self.library),
            "UNSYNCED_DIR": str(self.folder),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }

    @property
    def _synced(self) -> Path:
        return self.folder / "on-disk"

    def fail_next_sync(self) -> None:
        """The next fsync of a database's file fails, once; what was not synced is never written."""
        (self._synced / "fail").touch()

    @property
    def has_failed(self) -> bool:
        return not (self._synced / "fail").exists()

    def after_power_cut(self, folder: Path) -> Path:
        """A folder with what the disk has; processes must have been killed before."""
        folder.mkdir()
        for file in self._synced.iterdir():
            shutil.copy(file, folder / file.name)
        return folder


@dataclass(frozen=True, slots=True)
class TemporaryFolder:
    """Where processes started with `environment` have their temporary files, as long as there is
    room."""

    folder: Path
    library: Path

    @property
    def environment(self) -> dict[str, str]:
        place = str(self.folder)
        return {"LD_PRELOAD": str(self.library), "TMPDIR": place, "FULL_DIR": place}

    def fill(self) -> None:
        """From now on nothing can be written there."""
        self.folder.with_name(f"{self.folder.name}.full").touch()


def make_temporary_folder(folder: Path) -> TemporaryFolder:
    place = TemporaryFolder(folder / "tmp", _build(folder))
    place.folder.mkdir()
    return place


def make_disk(folder: Path) -> LossyDisk:
    """An empty disk in the folder."""
    disk = LossyDisk(folder / "disk", _build(folder))
    (disk.folder / "on-disk").mkdir(parents=True)
    return disk


def _build(folder: Path) -> Path:
    """The library, from the C source beside this file."""
    library = folder / "unsynced.so"
    subprocess.run(
        ["gcc", "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl", "-lpthread"], check=True
    )
    return library
