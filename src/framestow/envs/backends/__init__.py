"""Vector environments of other libraries, brought into the form that framestow's own have."""
