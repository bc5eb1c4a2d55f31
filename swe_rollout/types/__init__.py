"""Values of an episode and a job, and their stored forms: frozen, without logic of their own."""
