"""What a memory contains, in figures."""
