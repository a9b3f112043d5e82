/* The page of a running study reloads itself, also from disk, and stays where the reader was. */
(() => {
  const EVERY = 3000, KEY = "allometry-scroll";
  try {
    const before = sessionStorage.getItem(KEY);
    sessionStorage.removeItem(KEY);
    if (before !== null) window.scrollTo(0, Number(before));
  } catch { /* without storage the browser's own memory has to do */ }
  const age = Date.now() - Number(document.getElementById("running").dataset.written);
  // A page that nothing writes any more, since its study was killed, is looked at less often.
  const next = age > 600000 ? 60000 : EVERY;
  function reload() {
    if (document.hidden) { setTimeout(reload, next); return; }
    try { sessionStorage.setItem(KEY, String(window.scrollY)); } catch { /* see above */ }
    location.reload();
  }
  setTimeout(reload, next);
})();
