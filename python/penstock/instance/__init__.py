"""The daemon: an instance and its services, on Trio."""
