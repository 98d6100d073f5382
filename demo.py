"""`python demo.py` in a checkout is `gt demo`: two small models on real data."""

import sys

from gt.tools.demo import main

if __name__ == "__main__":
    sys.exit(main())
