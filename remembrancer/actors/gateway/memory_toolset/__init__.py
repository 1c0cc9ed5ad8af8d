"""The toolset `memory`: arguments, answers and what carries them out."""
