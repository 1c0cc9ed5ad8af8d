"""The toolset `files`: notes in a project's own Markdown, searched, read and written."""
