"""Remembrancer: long-term memory for AI assistants."""

__version__ = "0.3.0"
