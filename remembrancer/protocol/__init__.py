"""All that two actors have in common: messages, envelope, errors, sockets, keys.

Nothing is imported here, so that the bridge can take `protocol.paths` alone and stay small.
"""
