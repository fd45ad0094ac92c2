"""Finding what is remembered: lexical search, and how what several legs find becomes one ranking (M7)."""
