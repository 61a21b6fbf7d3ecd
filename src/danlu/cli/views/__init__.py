"""Tables and sentences that people read. Data in, text out."""
