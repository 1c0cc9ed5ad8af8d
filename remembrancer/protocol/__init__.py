"""The common language of the actors. Nothing is imported here, so that hooks and the bridge stay small."""
