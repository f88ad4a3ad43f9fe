"""The protocols, sans-I/O: messages go in, messages come out, and nothing blocks."""
