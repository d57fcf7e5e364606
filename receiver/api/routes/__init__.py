"""The endpoints, one module for each thing that they show or change."""
