"""Dockerfiles, locks and build steps of the images."""
