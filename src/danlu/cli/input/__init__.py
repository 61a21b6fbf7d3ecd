"""What people give to a command: options, job files, answers to prompts, signals."""
