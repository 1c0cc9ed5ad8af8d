"""Resources and their subscriptions."""
