"""Every command and option once: the table, its two parsers and the generated help."""
