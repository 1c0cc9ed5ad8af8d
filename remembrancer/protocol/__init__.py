"""The common language of the actors: messages, envelope, errors, sockets, keys.

Nothing is imported here, so that the bridge can import only `protocol.paths` and stay small.
"""
