"""What an operator configures: the models, and how a file, the environment and secret files become one."""
