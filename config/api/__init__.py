"""The JSON API put together: the views of what spans the apps, and the one object that serves them all."""
