"""Many models of one shape trained together: parameters stacked along a leading axis."""
