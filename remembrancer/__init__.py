"""Remembrancer: long-term memory for AI assistants."""

__version__ = "0.2.0"
