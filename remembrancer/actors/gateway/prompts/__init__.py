"""Prompts, and the completion of arguments."""
