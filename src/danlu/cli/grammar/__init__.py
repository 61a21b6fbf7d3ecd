"""A room without a card."""
