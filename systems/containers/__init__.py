"""Systems in containers, and a container engine to start them with."""
