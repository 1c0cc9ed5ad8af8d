"""What is to be done in the background: found in the records, handed out to the consolidator, and seen to its end."""
