"""The memory browser: web pages that show memories and let people correct them and undo changes. The browser is an ASGI
application, which the gateway's HTTP listener imports and mounts on the first request."""
