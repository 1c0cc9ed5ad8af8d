"""Remembrancer as clients see it that are not ours."""
