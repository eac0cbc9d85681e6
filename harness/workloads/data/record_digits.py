"""Record scikit-learn's handwritten digits, which the image workloads enlarge to 28 x 28.

Needs scikit-learn, which pergrad itself does not::

    pip install scikit-learn==1.9.1
    python harness/workloads/data/record_digits.py

The 1,797 digits of 8 x 8 pixels (0 to 16) come from E. Alpaydin and C. Kaynak, "Optical Recognition of
Handwritten Digits", UCI Machine Learning Repository, 1998, https://doi.org/10.24432/C50P49 (CC BY 4.0).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


def record() -> np.ndarray[Any, Any]:
    """One row per digit, uint8 of shape (1797, 65): 64 pixels, then the label."""
    from sklearn.datasets import load_digits  # type: ignore[import-not-found]

    pixels, labels = load_digits(return_X_y=True)
    return np.column_stack([pixels, labels]).astype(np.uint8)


if __name__ == "__main__":
    np.save(Path(__file__).parent / "digits.npy", record())
