"""Programs of client libraries that the test bed does not use, with its clients' arguments."""
