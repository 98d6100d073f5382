"""`python -m gt` runs the command `gt`."""

import sys

from gt.tools import cli

if __name__ == "__main__":
    sys.exit(cli.main())
