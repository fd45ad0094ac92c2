// What is there to be copied gets a button, where the browser lets a page copy: over https, or from this machine.
document.addEventListener("DOMContentLoaded", () => {
  if (!navigator.clipboard) return;
  for (const source of document.querySelectorAll("[data-copied]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "am-button am-copy";
    button.textContent = "Copy";
    button.setAttribute("aria-label", `Copy ${source.dataset.copied}`);
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(source.textContent.trim());
      button.textContent = "Copied";
    });
    source.after(button);
  }
});
