"""One module per topic. A route reads a body, calls an action, and presents the answer."""
