"""The progress of jobs for those who watch: counted, frozen as a snapshot, and laid out in rows."""
