"""Human pose: images of people and their joints."""
