// Draws the Mermaid blocks of a page, in the colors of its theme. Mermaid lies beside this file, so that a page opened from a folder
// has its drawings without a network; only pages with a block load it. Without it, a reader sees the block's text.
const blocks = [...document.querySelectorAll(".highlight-mermaid")];
const sources = blocks.map((block) => block.textContent.trim());

const isDark = () => {
  const chosen = document.body.dataset.theme;
  return chosen === "dark" || (chosen !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
};

const draw = async () => {
  mermaid.initialize({ startOnLoad: false, theme: isDark() ? "dark" : "neutral" });
  for (const [index, block] of blocks.entries()) {
    block.innerHTML = (await mermaid.render(`drawing-${index}`, sources[index])).svg;
  }
};

if (blocks.length) {
  const script = document.createElement("script");
  script.src = document.currentScript.src.replace(/drawings\.js.*/, "mermaid.tiny.js");
  script.onload = async () => {
    await draw();
    new MutationObserver(draw).observe(document.body, { attributeFilter: ["data-theme"] });
  };
  document.head.append(script);
}
