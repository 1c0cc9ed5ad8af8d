"""The journal of shared lanes: the order of operations that several machines apply, each to a file of its own."""
