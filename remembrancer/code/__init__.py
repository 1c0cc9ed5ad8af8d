"""Code: reading a tree of files, cutting them by their syntax, and an index that ranks the pieces."""
