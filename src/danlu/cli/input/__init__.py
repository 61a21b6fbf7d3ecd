"""Input of a command: options, job files, answers to prompts, signals."""
