"""The toolset `memory`: one module a tool, and what several of them share."""
