/* The page of `allometry serve`: it follows the runs, and takes a table that is dropped on it. */
(() => {
  const live = document.getElementById("live");
  if (!live) return;
  const EVERY = 2000;
  const note = document.getElementById("live-note"), drop = document.getElementById("live-drop");
  function say(text) {
    note.textContent = text;
    note.hidden = !text;
  }

  // ---- following --------------------------------------------------------------------------

  const KEY = "allometry-focus";
  try {
    const before = sessionStorage.getItem(KEY);
    sessionStorage.removeItem(KEY);
    if (before) document.getElementById(before)?.focus({ preventScroll: true });
  } catch { /* without storage the focus is lost on a reload */ }
  let version = null, failures = 0;
  async function look() {
    if (document.hidden) return;
    try {
      const reply = await fetch("version", { cache: "no-store" });
      const state = await reply.json();
      if (!reply.ok) { say(state.error); return; }
      if (failures || state.note) say(state.note);
      failures = 0;
      if (version !== null && state.version !== version) {
        try { sessionStorage.setItem(KEY, document.activeElement?.id || ""); } catch { /* see above */ }
        location.reload(); // the planner's state is in the address
      }
      version = state.version;
    } catch {
      failures += 1;
      if (failures === 3) say("The server does not answer. Start `allometry serve` again to follow the runs.");
    }
  }
  if (live.dataset.upload === "0") { look(); setInterval(look, EVERY); }

  // ---- dropping ---------------------------------------------------------------------------

  const root = live.dataset.upload === "0" ? "" : "../../";
  async function send(file) {
    if (file.size > Number(live.dataset.most)) {
      say(`${file.name} is larger than ${live.dataset.most >> 20} MiB. Give it to \`allometry serve\` instead.`);
      return;
    }
    say(`Reading ${file.name} ...`);
    try {
      const reply = await fetch(`${root}upload?name=${encodeURIComponent(file.name)}`, {
        method: "POST", body: file, headers: { "X-Allometry-Token": live.dataset.token },
      });
      const found = await reply.json();
      if (reply.ok) location.assign(found.view + location.hash);
      else say(found.error);
    } catch { say("The server did not take the file. It may be too large."); }
  }
  const wanted = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  addEventListener("dragover", (event) => { if (wanted(event)) { event.preventDefault(); drop.classList.add("over"); } });
  addEventListener("dragleave", () => drop.classList.remove("over"));
  addEventListener("drop", (event) => {
    if (!wanted(event)) return;
    event.preventDefault();
    drop.classList.remove("over");
    if (event.dataTransfer.files.length === 1) send(event.dataTransfer.files[0]);
    else say("Drop one table at a time.");
  });
  document.getElementById("live-file").addEventListener("change", (event) => {
    if (event.target.files.length) send(event.target.files[0]);
  });
})();
