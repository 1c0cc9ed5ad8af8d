"""Lets `python -m remembrancer` run the `remembrancer` command."""

import sys

from remembrancer.command_line import main

sys.exit(main())
