"""MCP clients on this machine: where each keeps its configuration, how it looks, and how it is changed with care."""
