"""Record the steps of vector environments in a memory."""
