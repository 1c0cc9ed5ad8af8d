"""Code: reading a tree of files, cutting them by syntax, and an index that ranks the pieces."""
