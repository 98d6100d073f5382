"""From which sizes on kernels of gt._kernels run, where they have been measured as faster.

Fixed, not measured at each start: the choice says which bits come out, and a program must find the
same ones tomorrow. Figures: benchmarks/RESULTS.md.
"""

PRODUCT_WORK_MIN = 64**3  # multiplications
UPDATE_ELEMENTS_MIN = 2**17  # of one parameter
CHANNEL_MIN = 8  # numbers beside each other, of batch norm
QUERIES_MIN = 8  # of attention
# Elements of a copy by tiles: below, all of it is in the first cache. As own_copies.cpp has it.
TURNED_MIN = 4096
