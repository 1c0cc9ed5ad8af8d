"""What words say: whether two texts say the same, for whoever has to decide that. Pure."""
