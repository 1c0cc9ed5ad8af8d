"""The memory browser: pages that show, correct and undo what is remembered. An ASGI application that the gateway's
HTTP listener mounts, and imports at the first request for it."""
