"""What algorithms that learn from replay share."""
