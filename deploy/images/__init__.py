"""The images of the receiver and of the roll-up: Dockerfiles, their locks and the steps that they run."""
