"use strict";
(() => {
  const page = JSON.parse(document.getElementById("content").textContent);
  const byId = id => document.getElementById(id);
  const darkMode = matchMedia("(prefers-color-scheme: dark)");
  const color = index => page.colors[darkMode.matches ? "dark" : "light"][index % page.colors.light.length];
  const classColor = label => label < 0 ? "#999999" : color(label);
  // Plotly interprets HTML tags in names.
  const escapeHtml = text => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  const shortName = text => escapeHtml(text.length > 20 ? `${text.slice(0, 19)}…` : text);

  function createElement(tag, attributes = {}, ...children) {
    const element = Object.assign(document.createElement(tag), attributes);
    element.append(...children);
    return element;
  }

  function swatch(background) {
    const element = createElement("span", {className: "swatch"});
    element.style.background = background;
    return element;
  }

  const cssColor = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function plotLayout(extra = {}) {
    const [text, rule] = ["--text", "--rule"].map(cssColor);
    const axis = {gridcolor: rule, zerolinecolor: rule, linecolor: rule, automargin: true};
    return {
      margin: {l: 46, r: 10, t: 8, b: 36}, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: {color: text, family: "system-ui, sans-serif", size: 12}, showlegend: false, hovermode: "closest",
      ...extra, xaxis: {...axis, ...extra.xaxis}, yaxis: {...axis, ...extra.yaxis},
    };
  }
  const plotOptions = {responsive: true, displayModeBar: false};

  function drawCurves() {
    byId("training-curves").hidden = !page.curves.length;
    const names = page.groups.length < 2 ? [] : page.groups;
    byId("legend").replaceChildren(...names.map((name, group) => createElement("span", {}, swatch(color(group)), name)));
    byId("curves").replaceChildren(...page.curves.map(curve => createElement("div", {},
      createElement("h3", {textContent: curve.title}),
      createElement("div", {className: "plot", id: `curve-${curve.key}`}))));
    for (const curve of page.curves) {
      const traces = curve.lines.map(line => {
        const name = escapeHtml(page.groups[line.group]);
        return {
          x: line.x, y: line.y, mode: line.x.length < 2 ? "markers" : "lines", line: {color: color(line.group), width: 1.6},
          name, hovertemplate: `epoch %{x:.1f}: %{y}<extra>${name}</extra>`,
        };
      });
      const yaxis = ["knn", "batch_1nn"].includes(curve.key) ? {tickformat: ".1%"} : {};
      Plotly.newPlot(`curve-${curve.key}`, traces, plotLayout({xaxis: {title: {text: "epoch"}}, yaxis}), plotOptions);
    }
  }

  function drawConfusionMatrices() {
    byId("confusion").hidden = !page.confusionMatrices.length;
    byId("confusion-matrices").replaceChildren(...page.confusionMatrices.map((matrix, i) => createElement("div", {},
      createElement("h3", {textContent: page.groups[matrix.group] + (matrix.column === "linear" ? "" : `, ${matrix.column}`)}),
      createElement("div", {className: "plot square", id: `confusion-${i}`}))));
    page.confusionMatrices.forEach((matrix, i) => {
      const names = matrix.classes.map(shortName);
      const percent = matrix.counts.map(row => row.map(count => 100 * count / Math.max(1, row.reduce((a, b) => a + b, 0))));
      const showNumbers = names.length <= 14;
      const trace = {
        type: "heatmap", z: percent, zmin: 0, zmax: 100, showscale: false,
        colorscale: [[0, cssColor("--card")], [1, cssColor("--accent")]],
        customdata: matrix.counts,
        text: showNumbers ? percent.map(row => row.map(value => value >= 0.5 ? value.toFixed(0) : "")) : undefined,
        texttemplate: showNumbers ? "%{text}" : undefined,
        hovertemplate: "true class: %{y}<br>predicted: %{x}<br>%{customdata} samples (%{z:.1f}%)<extra></extra>",
        x: names.map((_, label) => label), y: names.map((_, label) => label),
      };
      const ticks = {tickvals: names.map((_, label) => label), ticktext: names, showgrid: false};
      Plotly.newPlot(`confusion-${i}`, [trace], plotLayout({
        xaxis: {...ticks, tickangle: -45, title: {text: "predicted class"}},
        yaxis: {...ticks, autorange: "reversed", title: {text: "true class"}},
        margin: {l: 70, r: 10, t: 8, b: 70},
      }), plotOptions);
    });
  }

  const shownMaps = page.maps.slice(0, 2).map((_, i) => i);  // indices of the maps that are side by side

  const sampleName = (samples, point) =>
    samples.names.length ? samples.names[point].split("/").pop() : `${samples.split} sample ${samples.indices[point]}`;
  const className = (samples, label) => label < 0 ? "no label" : String(samples.classes[label] ?? label);
  const sampleClass = (samples, point) => samples.labels ? className(samples, samples.labels[point]) : "";

  function createPane(pane) {
    const choice = createElement("select", {ariaLabel: "Run shown in this map"},
      ...page.maps.map((map, i) => createElement("option", {value: i, textContent: page.groups[map.group]})));
    choice.value = shownMaps[pane];
    choice.hidden = page.maps.length < 2;
    choice.addEventListener("change", () => { shownMaps[pane] = Number(choice.value); drawMap(pane); });
    return createElement("div", {className: "pane"}, choice, createElement("p", {className: "faint", id: `caption-${pane}`}),
      createElement("div", {className: "map", id: `map-${pane}`}));
  }

  function drawMap(pane) {
    const map = page.maps[shownMaps[pane]], samples = page.samples[map.samples];
    const [shown, total] = [map.x.length, samples.total].map(count => count.toLocaleString("en"));
    byId(`caption-${pane}`).textContent = `t-SNE of the features of ${shown === total ? "all" : `${shown} of`} ${total} `
      + `${samples.split} samples of ${samples.data.split("/").pop()}`;
    const pointsByLabel = new Map();
    map.x.forEach((_, point) => {
      const label = samples.labels ? samples.labels[point] : 0;
      if (!pointsByLabel.has(label)) pointsByLabel.set(label, []);
      pointsByLabel.get(label).push(point);
    });
    const traces = [...pointsByLabel.keys()].sort((a, b) => a - b).map(label => {
      const points = pointsByLabel.get(label);
      return {
        type: map.x.length > 4000 ? "scattergl" : "scatter", mode: "markers", hoverinfo: "none", customdata: points,
        name: samples.labels ? shortName(className(samples, label)) : "samples",
        x: points.map(point => map.x[point]), y: points.map(point => map.y[point]),
        marker: {size: map.x.length > 10000 ? 3 : 6, opacity: 0.8, color: classColor(label)},
      };
    });
    // The last trace marks the selected sample and its neighbors.
    traces.push({
      type: "scatter", mode: "lines+markers", x: [], y: [], hoverinfo: "skip", showlegend: false,
      line: {width: 1, color: cssColor("--text")}, marker: {symbol: "circle-open", size: 10},
    });
    const hiddenAxis = {visible: false};
    const layout = plotLayout({
      xaxis: hiddenAxis, yaxis: {...hiddenAxis, scaleanchor: "x"}, showlegend: Boolean(samples.labels), dragmode: "pan",
      margin: {l: 6, r: 6, t: 6, b: 6}, legend: {itemsizing: "constant", orientation: "h", y: 0},
    });
    Plotly.newPlot(`map-${pane}`, traces, layout, {...plotOptions, scrollZoom: true}).then(plot => {
      let ignoreHover = false;  // for a moment after a click, so that the neighbors stay visible
      plot.on("plotly_hover", event => { if (!ignoreHover) showSample(pane, event.points[0].customdata, false); });
      plot.on("plotly_click", event => {
        ignoreHover = true;
        showSample(pane, event.points[0].customdata, true);
        setTimeout(() => { ignoreHover = false; }, 800);
      });
    });
  }

  function thumbnail(samples, point, scale) {
    const sprite = samples.sprite;
    if (!sprite || point >= sprite.count) return null;
    const [width, height] = [sprite.width * scale, sprite.height * scale];
    const element = createElement("span", {className: "thumbnail"});
    Object.assign(element.style, {
      width: `${width}px`, height: `${height}px`, backgroundImage: `url(${sprite.uri})`,
      backgroundSize: `${sprite.columns * width}px auto`,
      backgroundPosition: `${-(point % sprite.columns) * width}px ${-Math.floor(point / sprite.columns) * height}px`,
    });
    return element;
  }

  const spriteSizeOf = samples => samples.sprite ? Math.max(samples.sprite.width, samples.sprite.height) : 1;

  function neighborList(pane, samples, point, spriteSize) {
    return createElement("div", {className: "neighbors"}, ...page.maps[shownMaps[pane]].neighbors[point].map(neighbor => {
      const name = sampleName(samples, neighbor), label = sampleClass(samples, neighbor);
      const button = createElement("button", {title: label ? `${name}, ${label}` : name});
      button.append(thumbnail(samples, neighbor, Math.max(0.5, 48 / spriteSize)) ?? "", createElement("div", {textContent: label || name}));
      button.addEventListener("click", () => showSample(pane, neighbor, true));
      return button;
    }));
  }

  function markNeighbors(pane, point) {
    const map = page.maps[shownMaps[pane]];
    const path = map.neighbors[point].flatMap(neighbor => [point, neighbor, null]);
    const coordinates = axis => [path.map(p => p === null ? null : axis[p])];
    Plotly.restyle(`map-${pane}`, {x: coordinates(map.x), y: coordinates(map.y)}, [byId(`map-${pane}`).data.length - 1]);
  }

  // What is known about a sample: image, name, class, audio, table row.
  function sampleDetails(samples, point, autoplay) {
    const parts = [], spriteSize = spriteSizeOf(samples);
    const image = thumbnail(samples, point, Math.max(1, Math.floor(200 / spriteSize)));
    if (image) parts.push(image);
    parts.push(createElement("h3", {textContent: sampleName(samples, point)}));
    if (samples.labels) {
      parts.push(createElement("div", {}, swatch(classColor(samples.labels[point])), sampleClass(samples, point)));
    }
    if (samples.audio && samples.audio[point]) {
      parts.push(createElement("audio", {controls: true, src: samples.audio[point], autoplay}));
    }
    if (samples.rows) {
      const list = createElement("dl");
      samples.columns.forEach((name, i) => list.append(
        createElement("dt", {textContent: name, title: name}), createElement("dd", {textContent: samples.rows[point][i] ?? "–"})));
      parts.push(list);
    }
    return parts;
  }

  function showSample(pane, point, withNeighbors) {
    const key = page.maps[shownMaps[pane]].samples, samples = page.samples[key], panel = byId("panel");
    const parts = sampleDetails(samples, point, withNeighbors);
    if (withNeighbors) {
      const neighbors = neighborList(pane, samples, point, spriteSizeOf(samples));
      parts.push(createElement("h3", {textContent: "Nearest neighbors"}), neighbors);
      shownMaps.forEach((map, other) => { if (page.maps[map].samples === key) markNeighbors(other, point); });
    }
    panel.replaceChildren(...parts);
    panel.dataset.point = point;
  }

  const shownCards = 12, tableRows = 8;

  function drawAnswers() {
    byId("answers").hidden = !page.answers.length;
    byId("answer-list").replaceChildren(...page.answers.map(answer => {
      const title = page.groups.length > 1 ? `${answer.title}: ${page.groups[answer.group]}` : answer.title;
      const hasRows = answer.cards.some(card => card.samples.some(([key]) => page.samples[key].rows));
      const cards = createElement("div", {className: hasRows ? "cards wide-cards" : "cards"},
        ...answer.cards.slice(0, shownCards).map(createCard));
      const more = createElement("button", {className: "more", textContent: `Show all ${answer.cards.length}`});
      more.hidden = answer.cards.length <= shownCards;
      more.addEventListener("click", () => { cards.replaceChildren(...answer.cards.map(createCard)); more.hidden = true; });
      return createElement("div", {className: "answer"}, createElement("h3", {textContent: title}),
        ...answer.lead.map(textContent => createElement("p", {className: "faint", textContent})), cards, more);
    }));
  }

  function createCard(card) {
    const parts = [createElement("h4", {textContent: card.title})];
    if (card.text) parts.push(createElement("p", {textContent: card.text}));
    const hasRows = card.samples.some(([key]) => page.samples[key].rows);
    parts.push(hasRows ? compareRows(card.samples, card.text) : createElement("div", {className: "tiles"}, ...card.samples.map(createTile)));
    return createElement("div", {className: "card"}, ...parts);
  }

  function createTile([key, point, caption]) {
    const samples = page.samples[key], label = sampleClass(samples, point);
    const image = thumbnail(samples, point, Math.max(0.5, 64 / spriteSizeOf(samples))) ?? "";
    const text = caption || label || sampleName(samples, point);
    const button = createElement("button", {title: [sampleName(samples, point), label].filter(Boolean).join(", ")},
      image, createElement("div", {textContent: text}));
    button.addEventListener("click", () => openSample(samples, point));
    return button;
  }

  // A column for each sample; first the rows that the text names, then those in which the samples differ, if there are two.
  function compareRows(shown, text) {
    const all = shown.slice(0, 6).map(([key, point]) => page.samples[key].rows[point]);
    const names = page.samples[shown[0][0]].columns;
    const differs = i => all.length === 2 && all[0][i] !== all[1][i];
    const rank = i => 2 * text.includes(`${names[i]} `) + differs(i);
    const order = names.map((_, i) => i).sort((a, b) => rank(b) - rank(a) || a - b).slice(0, tableRows);
    const head = createElement("tr", {}, createElement("th"), ...shown.slice(0, 6).map(([key, point, caption]) => {
      const name = sampleName(page.samples[key], point), button = createElement("button", {textContent: caption || name, title: name});
      button.addEventListener("click", () => openSample(page.samples[key], point));
      return createElement("th", {}, button);
    }));
    return createElement("table", {}, createElement("thead", {}, head), createElement("tbody", {}, ...order.map(i =>
      createElement("tr", {className: differs(i) ? "differs" : ""}, createElement("th", {textContent: names[i]}),
        ...all.map(row => createElement("td", {textContent: row[i] ?? "–"}))))));
  }

  function openSample(samples, point) {
    const dialog = byId("sample");
    dialog.replaceChildren(...sampleDetails(samples, point, true));
    dialog.showModal();
  }

  function drawAll() {
    drawCurves();
    drawConfusionMatrices();
    drawAnswers();
    if (!page.maps.length) return;
    byId("embedding-map").hidden = false;
    byId("maps").className = `panes-${shownMaps.length}`;
    byId("maps").replaceChildren(...shownMaps.map((_, pane) => createPane(pane)), byId("panel"));
    shownMaps.forEach((_, pane) => drawMap(pane));
  }

  window.imixShowSample = (point, withNeighbors) => showSample(0, point, withNeighbors);  // for tests and the browser console
  byId("sample").addEventListener("click", event => { if (event.target === byId("sample")) byId("sample").close(); });
  drawAll();
  darkMode.addEventListener("change", drawAll);
})();
