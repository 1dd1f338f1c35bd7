"""Stores side by side: the same durable move of a workflow instance, on the same tables, by different means."""
