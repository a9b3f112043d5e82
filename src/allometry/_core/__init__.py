"""What every room stands on: errors, `Estimate`, `Spec`, files written whole, citations."""
