"""Judge facts, pure: the gap, its cost, and advice."""
