"""One module per topic; one function per command."""
