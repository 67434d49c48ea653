"""The webhook's certificate."""
