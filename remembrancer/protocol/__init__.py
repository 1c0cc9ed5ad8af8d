"""The messages that the processes exchange. Nothing is imported here, so that hooks and the bridge stay small."""
