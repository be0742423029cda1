"""What is due: claims of executions, and schedules that start them again and again."""
