"""What was decided and why: records and their stories; journals of a state, and replaying them. No files, no clock."""
