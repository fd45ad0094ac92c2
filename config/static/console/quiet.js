// What the policy of these pages forbids is not tried: styles put into the page, and words that are run.
htmx.config.includeIndicatorStyles = false;
htmx.config.allowEval = false;

// Of a double click the first is enough: the second would take the place of its answer, which may be shown this once.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.elements.once) return;
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "yes";
  // Who stops a page that hangs can send it again.
  setTimeout(() => delete form.dataset.sent, 10_000);
});
window.addEventListener("pageshow", () => {
  document.querySelectorAll("form[data-sent]").forEach((form) => delete form.dataset.sent);
});
