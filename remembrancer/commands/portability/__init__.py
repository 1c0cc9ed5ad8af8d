"""Backups, exports, and what they share."""
