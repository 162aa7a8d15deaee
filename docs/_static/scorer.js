/* What the search shows first: the public name that was typed, letter by letter; then other public names; pages after objects. */
var Scorer = {
  score: ([docname, title, anchor, descr, score, filename, kind]) => {
    const typed = new URLSearchParams(window.location.search).get("q").trim();
    const parts = title.split(".");
    const name = parts[parts.length - 1];
    if (kind === "object" && (name === typed || title === typed)) score += 100;
    if (kind === "object" && parts.length === 2) score += 10;
    if (docname.startsWith("reference/internals/") || docname.startsWith("_modules/")) score -= 20;
    return score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
