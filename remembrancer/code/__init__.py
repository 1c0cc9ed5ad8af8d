"""Code search: reads a tree of files, splits them by syntax, and ranks the chunks with an index."""
