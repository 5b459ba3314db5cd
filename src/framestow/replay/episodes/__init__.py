"""What a memory holds, episode by episode."""
