"use strict";
(() => {
  const page = JSON.parse(document.getElementById("content").textContent);
  const byId = id => document.getElementById(id);
  const darkMode = matchMedia("(prefers-color-scheme: dark)");
  const groupColor = group => page.groupColors[group % page.groupColors.length];
  const classColor = label => label < 0 ? "#999999" : page.classColors[label % page.classColors.length];
  // Plotly interprets HTML tags in names.
  const escapeHtml = text => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  function createElement(tag, attributes = {}, ...children) {
    const element = Object.assign(document.createElement(tag), attributes);
    element.append(...children);
    return element;
  }

  function swatch(color) {
    const element = createElement("span", {className: "swatch"});
    element.style.background = color;
    return element;
  }

  function plotLayout(extra = {}) {
    const style = getComputedStyle(document.documentElement);
    const [text, rule] = ["--text", "--rule"].map(name => style.getPropertyValue(name).trim());
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
    byId("legend").replaceChildren(...names.map((name, group) => createElement("span", {}, swatch(groupColor(group)), name)));
    byId("curves").replaceChildren(...page.curves.map(curve => createElement("div", {},
      createElement("h3", {textContent: curve.title}),
      createElement("div", {className: "plot", id: `curve-${curve.key}`}))));
    for (const curve of page.curves) {
      const traces = curve.lines.map(line => {
        const name = escapeHtml(page.groups[line.group]);
        return {
          x: line.x, y: line.y, mode: line.x.length < 2 ? "markers" : "lines", line: {color: groupColor(line.group), width: 1.6},
          name, hovertemplate: `epoch %{x:.1f}: %{y}<extra>${name}</extra>`,
        };
      });
      Plotly.newPlot(`curve-${curve.key}`, traces, plotLayout({xaxis: {title: {text: "epoch"}}}), plotOptions);
    }
  }

  function drawConfusionMatrices() {
    byId("confusion").hidden = !page.confusionMatrices.length;
    byId("confusion-matrices").replaceChildren(...page.confusionMatrices.map((matrix, i) => createElement("div", {},
      createElement("h3", {textContent: page.groups[matrix.group] + (matrix.column === "linear" ? "" : `, ${matrix.column}`)}),
      createElement("div", {className: "plot square", id: `confusion-${i}`}))));
    page.confusionMatrices.forEach((matrix, i) => {
      const names = matrix.classes.map(escapeHtml);
      const percent = matrix.counts.map(row => row.map(count => 100 * count / Math.max(1, row.reduce((a, b) => a + b, 0))));
      const showNumbers = names.length <= 14;
      const trace = {
        type: "heatmap", z: percent, zmin: 0, zmax: 100, showscale: false, colorscale: darkMode.matches
          ? [[0, "#191d27"], [1, "#ff7a8a"]] : [[0, "#f7f8fb"], [1, "#d1495b"]],
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

  let currentMap = 0;

  const splitName = samples => samples.split === "train" ? "training" : samples.split;
  const sampleName = (samples, point) =>
    samples.names.length ? samples.names[point].split("/").pop() : `${splitName(samples)} sample ${samples.indices[point]}`;
  const className = (samples, label) => label < 0 ? "no label" : String(samples.classes[label] ?? label);
  const sampleClass = (samples, point) => samples.labels ? className(samples, samples.labels[point]) : "";

  function drawMap(index) {
    currentMap = index;
    const map = page.maps[index], samples = page.samples[map.samples];
    [...byId("tabs").children].forEach((button, i) => button.setAttribute("aria-selected", i === index));
    byId("map-size").textContent =
      `${map.x.length.toLocaleString("en")} of ${samples.total.toLocaleString("en")} ${splitName(samples)} samples`;
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
        name: samples.labels ? escapeHtml(className(samples, label)) : "samples",
        x: points.map(point => map.x[point]), y: points.map(point => map.y[point]),
        marker: {size: map.x.length > 10000 ? 3 : 6, opacity: 0.8, color: classColor(label)},
      };
    });
    // The last trace holds the lines from the selected sample to its neighbors.
    traces.push({type: "scatter", mode: "lines", x: [], y: [], hoverinfo: "skip", showlegend: false, line: {width: 1, color: "#888"}});
    const hiddenAxis = {visible: false};
    const layout = plotLayout({
      xaxis: hiddenAxis, yaxis: {...hiddenAxis, scaleanchor: "x"}, showlegend: Boolean(samples.labels), dragmode: "pan",
      margin: {l: 6, r: 6, t: 6, b: 6}, legend: {itemsizing: "constant", y: 1},
    });
    Plotly.newPlot("map", traces, layout, {...plotOptions, scrollZoom: true}).then(plot => {
      let ignoreHover = false;  // for a moment after a click, so that the neighbors stay visible
      plot.on("plotly_hover", event => { if (!ignoreHover) showSample(event.points[0].customdata, false); });
      plot.on("plotly_click", event => {
        ignoreHover = true;
        showSample(event.points[0].customdata, true);
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

  function neighborList(map, samples, point, spriteSize) {
    return createElement("div", {className: "neighbors"}, ...map.neighbors[point].map(neighbor => {
      const name = sampleName(samples, neighbor), label = sampleClass(samples, neighbor);
      const button = createElement("button", {title: label ? `${name}, ${label}` : name});
      button.append(thumbnail(samples, neighbor, Math.max(0.5, 48 / spriteSize)) ?? "", createElement("div", {textContent: label || name}));
      button.addEventListener("click", () => showSample(neighbor, true));
      return button;
    }));
  }

  function showSample(point, withNeighbors) {
    const map = page.maps[currentMap], samples = page.samples[map.samples], panel = byId("panel");
    const parts = [];
    const spriteSize = samples.sprite ? Math.max(samples.sprite.width, samples.sprite.height) : 1;
    const image = thumbnail(samples, point, Math.max(1, Math.floor(200 / spriteSize)));
    if (image) parts.push(image);
    parts.push(createElement("h3", {textContent: sampleName(samples, point)}));
    if (samples.labels) {
      parts.push(createElement("div", {}, swatch(classColor(samples.labels[point])), sampleClass(samples, point)));
    }
    if (samples.audio && samples.audio[point]) {
      parts.push(createElement("audio", {controls: true, src: samples.audio[point], autoplay: withNeighbors}));
    }
    if (samples.rows) {
      const list = createElement("dl");
      samples.columns.forEach((name, i) => list.append(
        createElement("dt", {textContent: name, title: name}), createElement("dd", {textContent: samples.rows[point][i] ?? "–"})));
      parts.push(list);
    }
    if (withNeighbors) {
      parts.push(createElement("h3", {textContent: "Nearest neighbors"}), neighborList(map, samples, point, spriteSize));
      const path = map.neighbors[point].flatMap(neighbor => [point, neighbor, null]);
      const coordinates = axis => [path.map(p => p === null ? null : axis[p])];
      Plotly.restyle("map", {x: coordinates(map.x), y: coordinates(map.y)}, [byId("map").data.length - 1]);
    }
    panel.replaceChildren(...parts);
    panel.dataset.point = point;
  }

  function drawAll() {
    drawCurves();
    drawConfusionMatrices();
    if (!page.maps.length) return;
    byId("embedding-map").hidden = false;
    byId("tabs").replaceChildren(...(page.maps.length < 2 ? [] : page.maps.map((map, i) => {
      const button = createElement("button", {textContent: page.groups[map.group], role: "tab"});
      button.addEventListener("click", () => drawMap(i));
      return button;
    })));
    drawMap(currentMap);
  }

  window.imixShowSample = showSample;  // for tests and the browser console
  drawAll();
  darkMode.addEventListener("change", drawAll);
})();
