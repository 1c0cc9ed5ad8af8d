"""Clients' configuration files."""
