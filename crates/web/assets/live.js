// Live updates: when the server reports a change, fetches the page again and replaces its <main>.
// Without this script pages show the same, but do not update.
"use strict";
(() => {
  const GAP = 1000;
  let asked = false, busy = false, typed = false;
  const note = document.getElementById("live");
  const say = (words) => { if (note) note.textContent = words; };
  async function renew() {
    // Do not replace a form while the user types.
    const types = typed || document.activeElement?.matches("main input, main select");
    if (busy || types || document.hidden) { asked = true; return; }
    busy = true; asked = false;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin" });
      if (answer.ok && !answer.redirected) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const main = document.querySelector("main"), fresh = page.querySelector("main");
        const focused = document.activeElement && document.activeElement.id;
        if (fresh && main.innerHTML !== fresh.innerHTML) {
          main.replaceChildren(...fresh.childNodes);
          if (focused) document.getElementById(focused)?.focus();
        }
      }
    } catch { /* The next change tries again. */ }
    setTimeout(() => { busy = false; if (asked) renew(); }, GAP);
  }
  // On a phone the menu is wider than the screen.
  document.querySelector("nav a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  const feed = new EventSource("/api/v1/events");
  feed.onopen = () => { say("live"); renew(); };
  feed.onerror = () => say("not live: trying again");
  feed.addEventListener("changes", renew);
  feed.addEventListener("missed", renew);
  document.addEventListener("visibilitychange", () => { if (!document.hidden && asked) renew(); });
  document.addEventListener("input", () => { typed = true; });
  document.addEventListener("focusout", () => setTimeout(() => { if (asked) renew(); }, 0));
  document.addEventListener("submit", (event) => {
    const question = event.target.dataset.ask;
    if (question && !confirm(question)) event.preventDefault();
  });
})();
