"""The progress of jobs for live views: counted, frozen as a snapshot, laid out in rows."""
