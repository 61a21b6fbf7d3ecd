"""Jobs: submit, stop, remove, clone; logs, shells, views; why a job waits; runs that did not come through Danlu."""
