"""What-if against reality: scenarios, how an edit is made for real, and what became of every Pod."""
