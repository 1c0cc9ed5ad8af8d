"""The toolset `graph`: facts that are true for a time, and entities with their relations."""
