"""A week of two small projects, played against the real system and held against what the model of memory predicts."""
