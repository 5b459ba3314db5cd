"""What a memory is made with: spaces, layout of observations, fields of a step."""
