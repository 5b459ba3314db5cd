"""Many environments in worker processes behind one vector environment."""
