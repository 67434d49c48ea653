"""Speed and memory of the program, at sizes from a small lab to a large fleet. See README.md."""
