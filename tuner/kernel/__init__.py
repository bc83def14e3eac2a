"""What a kernel is: its file as read, and what one configuration of it becomes."""
