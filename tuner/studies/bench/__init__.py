"""`tune bench`: stored winners timed again beside what else there is."""
