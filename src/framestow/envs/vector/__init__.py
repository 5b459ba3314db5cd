"""Many environments as one: what every vector environment of framestow shares, and the one in this process."""
