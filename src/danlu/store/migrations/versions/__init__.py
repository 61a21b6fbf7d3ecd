"""One module per change of the tables. A landed one is never edited."""
