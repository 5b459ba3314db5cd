"""What a memory removes when it is full: limits in transitions and in bytes."""
