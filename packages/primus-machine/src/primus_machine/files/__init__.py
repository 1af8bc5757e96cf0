"""Files written so that they appear whole, and read only where they are regular, bounded and of a trusted owner."""
