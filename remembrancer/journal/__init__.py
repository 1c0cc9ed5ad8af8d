"""The journal of shared lanes: an ordered log of operations that several machines apply to files of their own."""
