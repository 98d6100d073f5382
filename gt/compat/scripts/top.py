"""`python -m gt.scripts.top` is `gt top`."""

import sys

from gt.tools import cli


def main() -> int:
    """Runs `gt top` with the arguments of the process."""
    return cli.main(["top", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
