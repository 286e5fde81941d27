// The scores of the site's search: those of Sphinx, and first the pages whose title has all words.
"use strict";
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([, title, , , score]) => {
    const words = (new URLSearchParams(location.search).get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const isInTitle = words.every((word) => title.toLowerCase().includes(word));
    return words.length && isInTitle ? score + 100 : score;
  },
};
