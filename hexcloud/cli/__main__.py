"""`python -m hexcloud.cli`: the same as `hexcloud`."""

import sys

from hexcloud.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
