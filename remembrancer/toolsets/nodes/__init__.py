"""The toolset `nodes`: five tools over memories that are linked to one another."""
