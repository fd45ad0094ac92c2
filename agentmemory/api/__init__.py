"""The JSON views of what was said and what is remembered. `config.api` puts them together with those of other apps."""
