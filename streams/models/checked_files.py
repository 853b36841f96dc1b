"""Model files are loaded only where they are the ones that this version was tried with.

The models come in packages of one author each, which run with the rights of the program: a version
that was replaced, or a file that was changed or damaged, is refused.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from palimpsest.streams.models.base import PermanentModelError

VOCABULARY: Final = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
COLBERT: Final = {
    "model.onnx": "4980983628c18e4f0a4c756114abd2d7c097c6ccad9cffc70e77302d21e05df0",
    "vocab.txt": VOCABULARY,
}
RERANKER: Final = {
    "model.onnx": "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1",
    "vocab.txt": VOCABULARY,
}
MULTILINGUAL: Final = {
    "e5-small-q4.bin": "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
}


def package_folder(package: str) -> Path | None:
    """Where a package is installed, without importing it; None where it is not."""
    spec = importlib.util.find_spec(package)
    roots = (spec.submodule_search_locations if spec else None) or ()
    return next(map(Path, roots), None)


def check_files(folder: Path, sums: Mapping[str, str], install: str) -> None:
    """Raises PermanentModelError where a file is not what its SHA-256 says."""
    for name, expected in sums.items():
        with (folder / name).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != expected:
            raise PermanentModelError(
                f"{folder / name} is not the file that this version was tried with (SHA-256"
                f" {found[:16]}… in place of {expected[:16]}…): it was changed or damaged, or is of"
                f" another release; {install} --force-reinstall --no-deps puts it right"
            )
