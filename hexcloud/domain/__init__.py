"""The nouns: frozen models and the error tree. Imports the standard library and pydantic only."""
