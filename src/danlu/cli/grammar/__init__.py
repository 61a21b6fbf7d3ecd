"""Every command and option once: the table, its two parsers and the help that is made from it."""
