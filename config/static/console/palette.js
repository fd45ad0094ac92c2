// Enter in the palette opens what is marked in it. The first of what was found is marked by itself, and where nothing is,
// or what is shown was found for other words than those in the box by now, the page of the search answers.
(() => {
  const BOX = "search-input-command";
  let typed = false;

  document.addEventListener("input", (event) => {
    if (event.target.id === BOX) typed = true;
  });
  document.addEventListener("htmx:after-swap", (event) => {
    if (event.target.id !== "command-results") return;
    const asked = new URL(event.detail.xhr.responseURL).searchParams.get("s");
    typed = asked !== document.getElementById(BOX).value;
    // What the mouse does where it comes upon it; it is listened for a moment after it is there.
    setTimeout(() => {
      document.querySelector("#command-results-list li")?.dispatchEvent(new MouseEvent("mouseenter"));
    });
  });
  document.addEventListener(
    "keydown",
    (event) => {
      if (event.target.id !== BOX) return;
      if (event.key === "ArrowDown" || event.key === "ArrowUp") typed = false;
      const marked = document.querySelector("#command-results-list li.active a, #command-history li.active a");
      if (event.key !== "Enter" || (marked && !typed)) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      const words = event.target.value.trim();
      const form = document.getElementById("search-everything");
      if (!words || !form) return;
      const page = `${form.action}?${new URLSearchParams({ s: words })}`;
      if (event.ctrlKey || event.metaKey) window.open(page, "_blank");
      else window.location = page;
    },
    true,
  );
})();
