"""`python -m gt.tools.demo` is `gt demo`."""

import sys

from gt.tools.demo import main

sys.exit(main())
