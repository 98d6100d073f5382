"""`python -m gt.demo` is `gt demo`."""

import sys

from gt.demo import main

sys.exit(main())
