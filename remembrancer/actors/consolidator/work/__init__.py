"""What is done about each duty: plans, which are pure, and thin shells that read and submit."""
