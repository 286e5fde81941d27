"""Models that were not written for jembench: plain networks, generators, weights trained elsewhere."""
