"""Jobs: submit, stop, remove, clone; logs, shells, views; why a job waits; runs from outside Danlu."""
