"""Running sessions as JSON views: inputs, executions, the log. Routers that the API's assembly puts in their place."""
