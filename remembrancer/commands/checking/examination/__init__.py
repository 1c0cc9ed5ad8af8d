"""What the doctor looks at: each module gathers facts of one sort, read only, for `checks.py` to judge."""
