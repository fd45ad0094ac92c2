// What the policy of these pages forbids is not tried: styles put into the page, and words that are run.
htmx.config.includeIndicatorStyles = false;
htmx.config.allowEval = false;
