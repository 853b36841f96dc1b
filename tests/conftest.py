"""What holds for all tests."""

from __future__ import annotations

import os
import sys

# Hundreds of tests start the program: each would compile all its modules anew, a third of a
# second of processor, where the environment says that nothing compiled shall be written.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
