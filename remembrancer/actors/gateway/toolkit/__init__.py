"""What a tool is: its arguments, their schema and their errors."""
