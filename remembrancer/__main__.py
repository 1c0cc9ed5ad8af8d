"""`python -m remembrancer` is the same command as `remembrancer`."""

import sys

from remembrancer.command_line import main

sys.exit(main())
