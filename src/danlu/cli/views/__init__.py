"""Tables and sentences for people. Data in, text out."""
