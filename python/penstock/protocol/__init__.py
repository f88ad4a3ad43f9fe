"""The protocols, sans-IO: messages go in, messages come out, and nothing here waits."""
