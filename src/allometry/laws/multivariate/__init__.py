"""Laws in any variables: expressions, roles, composed candidates, optima and designs."""
