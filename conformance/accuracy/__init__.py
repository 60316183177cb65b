"""How accurate products are, against what a user would use instead and against bounds."""
