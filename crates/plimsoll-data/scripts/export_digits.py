"""Writes data/digits.bin from the copy of the digits that scikit-learn ships.

    pip install numpy scikit-learn
    python scripts/export_digits.py

The format is described in data/README.md.
"""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

digits = load_digits()
pixels = digits.data
labels = digits.target
assert pixels.shape == (1797, 64) and labels.shape == (1797,)
assert (pixels == np.round(pixels)).all() and pixels.min() == 0 and pixels.max() == 16
assert set(labels) == set(range(10))

records = np.column_stack([pixels, labels]).astype(np.uint8)
path = Path(__file__).parent.parent / "data" / "digits.bin"
path.write_bytes(records.tobytes())
print(f"{path}: {records.shape[0]} records, {path.stat().st_size} bytes")
