"""How the console writes things: labels, figures, links, diffs, conversations. No pages, those are each app's admin."""
