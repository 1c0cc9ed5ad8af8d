"""`python -m remembrancer` is the same command as `remembrancer`."""

import sys

from remembrancer.launcher import main

sys.exit(main())
