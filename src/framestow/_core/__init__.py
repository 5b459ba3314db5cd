"""The native floor: packing, unpacking and gathering of segments in C++."""
