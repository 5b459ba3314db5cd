"""What `framestow bench` does: play, measure in turn, and the systems that are measured."""
