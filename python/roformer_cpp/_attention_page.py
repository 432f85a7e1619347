"""The page of `roformer_cpp.inspect`. Its data are numbers of 16 bits for each layer, head, query and key."""

PAGE = r"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Attention</title>
<style>
:root { color-scheme: light dark; --line: light-dark(#c8ccd4, #444a55); --soft: light-dark(#f3f4f7, #1d2026); }
body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 75rem; padding: 0 1rem;
  color: light-dark(#1c1e22, #e4e6ea); background: light-dark(#fff, #14161a); }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin: 1.2rem 0 .4rem; }
label { margin-right: 1rem; } select { font: inherit; max-width: 16rem; }
#heads { display: grid; grid-template-columns: repeat(auto-fill, minmax(8rem, 1fr)); gap: .6rem; }
#heads button { font: inherit; padding: .3rem; background: var(--soft); color: inherit; border: 2px solid var(--line);
  border-radius: .4rem; cursor: pointer; } #heads button[aria-pressed=true] { border-color: #d55e00; }
canvas { image-rendering: pixelated; width: 100%; display: block; }
#main { display: grid; grid-template-columns: minmax(0, 3fr) minmax(18rem, 2fr); gap: 1.5rem; }
@media (max-width: 50rem) { #main { grid-template-columns: 1fr; } }
#big { cursor: crosshair; border: 1px solid var(--line); }
#text button { font: inherit; color: inherit; background: none; border: 1px solid transparent; padding: 0 .15rem;
  border-radius: .2rem; cursor: pointer; } #text button[aria-pressed=true] { border-color: #d55e00; }
table { border-collapse: collapse; width: 100%; } th, td { padding: .1rem .4rem; border-bottom: 1px solid var(--line); }
td:not(:first-child), th:not(:first-child) { text-align: right; font-variant-numeric: tabular-nums; }
</style>
</head>
<body>
<h1></h1>
<p><label>Show <select id="part">
<option value="weights">attention weights</option>
<option value="content">content's part of the score, s q·k</option>
<option value="encoding">encoding's part of the score</option>
</select></label>
<label>Layer <select id="layer"></select></label></p>
<h2>Heads</h2>
<div id="heads"></div>
<h2 id="name"></h2>
<div id="main">
<div><canvas id="big" role="img" aria-label="Rows are queries, columns are keys"></canvas>
<p id="legend"></p></div>
<div><p id="text" aria-label="Queries"></p><table><caption id="caption"></caption>
<thead><tr><th>key</th><th>weight</th><th>content</th><th>encoding</th></tr></thead><tbody></tbody></table></div>
</div>
<script id="data" type="application/json">/*data*/</script>
<script>
const data = JSON.parse(document.getElementById("data").textContent);
const get = id => document.getElementById(id), count = data.tokens.length, size = count * count;
data.tokens = data.tokens.map(token => token.replace(/^[Ġ▁]/, "␣"));
const chosen = {part: "weights", layer: 0, head: 0, query: count - 1};
for (const layer of data.layers) for (const part of Object.values(layer)) {
  const bytes = Uint8Array.from(atob(part.data), x => x.charCodeAt(0)), view = new DataView(bytes.buffer);
  part.values = Float32Array.from({length: bytes.length / 2}, (_, i) => {
    const step = view.getUint16(2 * i, true);
    return step === 65535 ? NaN : part.low + step / 65534 * (part.high - part.low);
  });
}
const value = (part, head, query, key) =>
  data.layers[chosen.layer][part].values[head * size + query * count + key];
// Weights: from the background to blue. Parts of scores: blue below 0, orange above.
function colour(x, limit) {
  if (Number.isNaN(x)) return [128, 128, 128, 40];
  const strength = Math.min(1, Math.abs(x) / limit);
  return [...(chosen.part === "weights" || x < 0 ? [0, 114, 178] : [213, 94, 0]),
    255 * (chosen.part === "weights" ? Math.sqrt(strength) : strength)];
}
function limitOf(head) {
  let most = 1e-9;
  for (let i = 0; i < size; ++i) {
    const x = Math.abs(data.layers[chosen.layer][chosen.part].values[head * size + i]);
    if (x > most) most = x;
  }
  return most;
}
function draw(canvas, head) {
  canvas.width = canvas.height = count;
  const image = canvas.getContext("2d").createImageData(count, count), limit = limitOf(head);
  for (let i = 0; i < size; ++i)
    image.data.set(colour(value(chosen.part, head, Math.floor(i / count), i % count), limit), 4 * i);
  canvas.getContext("2d").putImageData(image, 0, 0);
  return limit;
}
const shown = x => Number.isNaN(x) ? "–" : x.toFixed(3);
function element(tag, text, pressed, click) {
  const node = document.createElement(tag);
  node.textContent = text;
  if (click) { node.type = "button"; node.ariaPressed = pressed; node.onclick = click; }
  return node;
}
function choose(change) { Object.assign(chosen, change); show(); }
function show() {
  get("heads").replaceChildren(...Array.from({length: data.heads}, (_, head) => {
    const node = element("button", `head ${head}`, head === chosen.head, () => choose({head}));
    node.append(document.createElement("canvas"));
    draw(node.lastChild, head);
    return node;
  }));
  get("name").textContent = `Layer ${chosen.layer}, head ${chosen.head}`;
  const limit = draw(get("big"), chosen.head);
  get("legend").textContent = `Rows are queries, columns are keys; full colour is ${shown(limit)}` +
    (chosen.part === "weights" ? "." : ", blue below 0, orange above.") +
    (chosen.part === "encoding" ? " Numbers are relative to that of the query itself." : "");
  get("text").replaceChildren(...data.tokens.map((token, query) =>
    element("button", token, query === chosen.query, () => choose({query}))));
  get("caption").textContent = `Keys of query ${chosen.query}, “${data.tokens[chosen.query]}”`;
  const at = part => key => value(part, chosen.head, chosen.query, key);
  const keys = data.tokens.map((_, key) => key).filter(key => at("weights")(key) > 0)
    .sort((a, b) => at("weights")(b) - at("weights")(a)).slice(0, 12);
  document.querySelector("tbody").replaceChildren(...keys.map(key => {
    const row = document.createElement("tr");
    const numbers = ["weights", "content", "encoding"].map(part => shown(at(part)(key)));
    row.append(...[`${key} ${data.tokens[key]}`, ...numbers].map(text => element("td", text)));
    return row;
  }));
}
document.title = document.querySelector("h1").textContent = data.title;
get("layer").append(...data.layers.map((_, layer) => new Option(layer, layer)));
get("layer").onchange = event => choose({layer: Number(event.target.value)});
get("part").onchange = event => choose({part: event.target.value});
get("big").onclick = event => {
  const box = get("big").getBoundingClientRect();
  choose({query: Math.min(count - 1, Math.floor((event.clientY - box.top) / box.height * count))});
};
show();
</script>
</body>
</html>
"""
