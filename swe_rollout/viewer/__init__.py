"""Pages for people: one self-contained HTML file for a job or an episode; no server, no network."""
