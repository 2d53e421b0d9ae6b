"""What is shipped beside the wheel, and the tools that make it."""
