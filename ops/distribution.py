"""The name under which the project is published, and its version and install hints.

The package that is imported is `palimpsest`; on the package index that name belongs to another
project.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

DISTRIBUTION: Final = "palimpsest-memory"


def program_version() -> str:
    """Return the version that is installed."""
    return version(DISTRIBUTION)


def install_hint(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install '.[{extra}]' in the folder of the checkout"
