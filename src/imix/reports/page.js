"use strict";
(() => {
  const page = JSON.parse(document.getElementById("content").textContent);
  const byId = id => document.getElementById(id);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colour = at => page.colours[at % page.colours.length];
  const classColour = label => label < 0 ? "#999999" : page.classColours[label % page.classColours.length];
  const plain = text => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");  // Plotly reads tags

  function make(tag, attributes = {}, ...children) {
    const element = Object.assign(document.createElement(tag), attributes);
    element.append(...children);
    return element;
  }

  function look(extra = {}) {
    const style = getComputedStyle(document.documentElement);
    const [text, rule] = ["--text", "--rule"].map(name => style.getPropertyValue(name).trim());
    const axis = {gridcolor: rule, zerolinecolor: rule, linecolor: rule, automargin: true};
    return {
      margin: {l: 46, r: 10, t: 8, b: 36}, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: {color: text, family: "system-ui, sans-serif", size: 12}, showlegend: false, hovermode: "closest",
      ...extra, xaxis: {...axis, ...extra.xaxis}, yaxis: {...axis, ...extra.yaxis},
    };
  }
  const options = {responsive: true, displayModeBar: false};

  function drawCurves() {
    byId("along").hidden = !page.curves.length;
    byId("legend").replaceChildren(...(page.arms.length < 2 ? [] : page.arms.map((name, at) => {
      const swatch = make("span", {className: "swatch"});
      swatch.style.background = colour(at);
      return make("span", {}, swatch, name);
    })));
    byId("curves").replaceChildren(...page.curves.map(curve => {
      const place = make("div", {className: "plot", id: `curve-${curve.key}`});
      return make("div", {}, make("h3", {textContent: curve.title}), place);
    }));
    for (const curve of page.curves) {
      const traces = curve.lines.map(line => ({
        x: line.x, y: line.y, mode: line.x.length < 2 ? "markers" : "lines", line: {color: colour(line.arm), width: 1.6},
        name: plain(page.arms[line.arm]), hovertemplate: `%{y}<extra>${plain(page.arms[line.arm])}</extra>`,
      }));
      Plotly.newPlot(`curve-${curve.key}`, traces, look({xaxis: {title: {text: "epoch"}}}), options);
    }
  }

  function drawConfusions() {
    byId("confused").hidden = !page.confusions.length;
    byId("confusions").replaceChildren(...page.confusions.map((one, at) => make("div", {},
      make("h3", {textContent: page.arms[one.arm] + (one.protocol === "linear" ? "" : `, ${one.protocol}`)}),
      make("div", {className: "plot square", id: `confusion-${at}`}))));
    page.confusions.forEach((one, at) => {
      const names = one.classes.map(plain);
      const share = one.counts.map(row => row.map(count => 100 * count / Math.max(1, row.reduce((a, b) => a + b, 0))));
      const few = names.length <= 14;
      const trace = {
        type: "heatmap", z: share, zmin: 0, zmax: 100, showscale: false, colorscale: dark.matches
          ? [[0, "#191d27"], [1, "#ff7a8a"]] : [[0, "#f7f8fb"], [1, "#d1495b"]],
        customdata: one.counts, text: few ? share.map(row => row.map(value => value >= 0.5 ? value.toFixed(0) : "")) : undefined,
        texttemplate: few ? "%{text}" : undefined,
        hovertemplate: "%{y} taken for %{x}: %{customdata} (%{z:.1f} %)<extra></extra>",
        x: names.map((_, number) => number), y: names.map((_, number) => number),
      };
      const ticks = {tickvals: names.map((_, number) => number), ticktext: names, showgrid: false};
      Plotly.newPlot(`confusion-${at}`, [trace],
        look({xaxis: {...ticks, tickangle: -45}, yaxis: {...ticks, autorange: "reversed"}, margin: {l: 70, r: 10, t: 8, b: 70}}), options);
    });
  }

  let current = 0;

  function drawMap(at) {
    current = at;
    const map = page.maps[at], samples = page.samples[map.samples];
    [...byId("choices").children].forEach((button, number) => button.setAttribute("aria-selected", number === at));
    byId("told").textContent = `${map.x.length.toLocaleString("en")} of ${samples.of.toLocaleString("en")} ${samples.part} samples`;
    const groups = new Map();
    map.x.forEach((_, point) => {
      const label = samples.labels ? samples.labels[point] : 0;
      if (!groups.has(label)) groups.set(label, []);
      groups.get(label).push(point);
    });
    const traces = [...groups.keys()].sort((a, b) => a - b).map(label => {
      const points = groups.get(label);
      const name = samples.labels ? (label < 0 ? "no label" : plain(samples.classes[label] ?? label)) : "samples";
      return {
        type: map.x.length > 4000 ? "scattergl" : "scatter", mode: "markers", name, hoverinfo: "none", customdata: points,
        x: points.map(point => map.x[point]), y: points.map(point => map.y[point]),
        marker: {size: map.x.length > 10000 ? 3 : 6, opacity: 0.8, color: classColour(label)},
      };
    });
    traces.push({type: "scatter", mode: "lines", x: [], y: [], hoverinfo: "skip", showlegend: false, line: {width: 1, color: "#888"}});
    const hidden = {visible: false};
    const layout = look({xaxis: hidden, yaxis: {...hidden, scaleanchor: "x"}, showlegend: Boolean(samples.labels), dragmode: "pan",
      margin: {l: 6, r: 6, t: 6, b: 6}, legend: {itemsizing: "constant", y: 1}});
    Plotly.newPlot("map", traces, layout, {...options, scrollZoom: true}).then(plot => {
      let held = false;
      plot.on("plotly_hover", event => { if (!held) show(event.points[0].customdata, false); });
      plot.on("plotly_click", event => { held = true; show(event.points[0].customdata, true); setTimeout(() => { held = false; }, 800); });
    });
  }

  function thumb(samples, point, scale) {
    const sprite = samples.sprite;
    if (!sprite || point >= sprite.n) return null;
    const [width, height] = [sprite.width * scale, sprite.height * scale];
    const element = make("span", {className: "thumb"});
    Object.assign(element.style, {
      width: `${width}px`, height: `${height}px`, backgroundImage: `url(${sprite.uri})`,
      backgroundSize: `${sprite.columns * width}px auto`,
      backgroundPosition: `${-(point % sprite.columns) * width}px ${-Math.floor(point / sprite.columns) * height}px`,
    });
    return element;
  }

  const called = (samples, point) => samples.names.length ? samples.names[point].split("/").pop() : `${samples.part} ${samples.numbers[point]}`;
  const classOf = (samples, point) => !samples.labels ? "" : samples.labels[point] < 0 ? "no label" : String(samples.classes[samples.labels[point]]);

  function show(point, near) {
    const map = page.maps[current], samples = page.samples[map.samples], panel = byId("panel");
    const parts = [];
    const size = samples.sprite ? Math.max(samples.sprite.width, samples.sprite.height) : 1;
    const picture = thumb(samples, point, Math.max(1, Math.floor(200 / size)));
    if (picture) parts.push(picture);
    parts.push(make("h3", {textContent: called(samples, point)}));
    if (samples.labels) {
      const swatch = make("span", {className: "swatch"});
      swatch.style.background = classColour(samples.labels[point]);
      parts.push(make("div", {}, swatch, classOf(samples, point)));
    }
    if (samples.sounds && samples.sounds[point]) parts.push(make("audio", {controls: true, src: samples.sounds[point], autoplay: near}));
    if (samples.rows) {
      const list = make("dl");
      samples.columns.forEach((name, at) => list.append(make("dt", {textContent: name, title: name}), make("dd", {textContent: samples.rows[point][at] ?? "–"})));
      parts.push(list);
    }
    if (near) {
      parts.push(make("h3", {textContent: "Nearest neighbours"}));
      parts.push(make("div", {className: "near"}, ...map.near[point].map(other => {
        const button = make("button", {title: `${called(samples, other)} ${classOf(samples, other)}`});
        button.append(thumb(samples, other, Math.max(0.5, 48 / size)) ?? "", make("div", {textContent: classOf(samples, other) || called(samples, other)}));
        button.addEventListener("click", () => show(other, true));
        return button;
      })));
      const lines = map.near[point].flatMap(other => [point, other, null]);
      const last = byId("map").data.length - 1;
      Plotly.restyle("map", {x: [lines.map(p => p === null ? null : map.x[p])], y: [lines.map(p => p === null ? null : map.y[p])]}, [last]);
    }
    panel.replaceChildren(...parts);
    panel.dataset.point = point;
  }

  function drawAll() {
    drawCurves();
    drawConfusions();
    if (!page.maps.length) return;
    byId("maps").hidden = false;
    byId("choices").replaceChildren(...(page.maps.length < 2 ? [] : page.maps.map((map, at) => {
      const button = make("button", {textContent: page.arms[map.arm], role: "tab"});
      button.addEventListener("click", () => drawMap(at));
      return button;
    })));
    drawMap(current);
  }

  window.imixShow = show;  // also by hand, from the console
  drawAll();
  dark.addEventListener("change", drawAll);
})();
