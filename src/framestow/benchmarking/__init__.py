"""What `framestow bench` runs: record a play, fill the memories, time them in turn, and show the figures."""
