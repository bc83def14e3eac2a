"""torch; where it is not installed a script ends with what to do, before it has begun."""

import sys

try:
    import torch
except ModuleNotFoundError:
    sys.exit("this script compares with torch: scripts/run pip install torch")

__all__ = ["torch"]
