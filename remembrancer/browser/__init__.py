"""The memory browser: web pages that show memories and let a person correct them and undo changes. It is an ASGI
application that the gateway's HTTP listener mounts and imports on its first request."""
