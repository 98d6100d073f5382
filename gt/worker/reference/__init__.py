"""The numpy backend: the plain implementation of each row that the others are compared with."""
