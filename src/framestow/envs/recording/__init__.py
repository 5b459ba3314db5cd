"""From the steps of environments to a memory."""
