"""Every row of the table, in its order, for `compare.py` and `test_rows.py`."""

import emitting
import images
import planning
import programs
import sequences
import serving
import training

ROWS = [
    *emitting.ROWS,
    *training.ROWS,
    *images.ROWS,
    *sequences.ROWS,
    *programs.ROWS,
    *planning.ROWS,
    *serving.ROWS,
]
