"""The memory browser: web pages that show memories and let a person correct them and undo changes. It is an ASGI
application, which the gateway's HTTP listener imports and mounts on the first request."""
