"""A week of two small projects, played against the real system and compared with the predictions of the memory
model."""
