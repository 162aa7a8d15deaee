// Draw the recorded scenes of docs/scenes: sliders choose a frame, Plotly draws it.
"use strict";

const BLUE = "#3a86d8", ORANGE = "#e07b1f", GREEN = "#3a9d5d";

const line = (name, x, y, color, more) =>
  ({name, x, y, mode: "lines", line: {color, width: 1.5, ...(more || {})}, hoverinfo: "skip"});

const shown = (traces) => traces.map((trace, i, all) =>  // one entry of the legend for traces of one name
  ({...trace, showlegend: trace.name !== undefined && all.findIndex(other => other.name === trace.name) === i}));

const DRAW = {
  widths(scene, frame) {
    const edge = sign => frame.mean.map((m, i) => m + sign * 2 * frame.std[i]);
    const band = {x: scene.x.concat([...scene.x].reverse()), y: edge(1).concat(edge(-1).reverse()), fill: "toself",
      name: "infinite width, 95 %", mode: "none", fillcolor: "rgba(58, 157, 93, .25)", hoverinfo: "skip"};
    return {
      traces: [
        band, line("its mean", scene.x, frame.mean, GREEN),
        ...frame.networks.map(f => line("five networks", scene.x, f, BLUE)),
        ...frame.linearised.map(f => line("two of them linearised", scene.x, f, ORANGE, {dash: "dash"})),
        {name: "examples", x: scene.examples[0], y: scene.examples[1], mode: "markers", marker: {color: "#d33", size: 9}},
      ],
      x: {title: {text: "angle of the input"}, range: [-3.15, 3.15]}, y: {title: {text: "f"}, range: [-3, 3]},
    };
  },
  alphas(scene, frame) {
    const place = sign => {
      const at = [...frame.signs.keys()].filter(i => frame.signs[i] * sign > 0);
      return frame.neurons.map(axis => at.map(i => axis[i]));
    };
    const dots = (name, [x, y], color) => ({name, x, y, mode: "markers", marker: {color, size: 7}, hoverinfo: "skip"});
    const [cos, sin, sign] = scene.teacher, far = 6;
    const rays = sign.map((s, i) =>
      line("directions of the teacher's", [0, far * cos[i]], [0, far * sin[i]], "#888", {dash: "dot"}));
    return {
      traces: [...rays, dots("neurons, a > 0", place(1), BLUE), dots("neurons, a < 0", place(-1), ORANGE)],
      title: `loss ${frame.loss.toPrecision(2)}, kernel moved ${+(100 * frame.kernel).toPrecision(2)} %`,
      x: {title: {text: "|a| w, first axis"}, range: [-far, far]},
      y: {title: {text: "|a| w, second axis"}, range: [-far, far], scaleanchor: "x"},
    };
  },
  rates(scene, frame, at) {
    const traces = [], steps = scene.sliders.steps.length;
    for (const [name, color] of [["muP", BLUE], ["standard", ORANGE]]) {
      for (let i = 0; i < at[0]; i++)
        traces.push(line(undefined, scene.rates, scene.frames[i * steps + at[1]][name], color, {width: .7}));
      traces.push({...line(name === "muP" ? "muP" : "standard weights, one rate", scene.rates, frame[name], color,
        {width: 3}), mode: "lines+markers"});
    }
    const ends = [Math.min(...scene.rates), Math.max(...scene.rates)].map(Math.log10);
    return {traces, title: "thin lines: narrower networks; a line ends where training diverges",
      x: {title: {text: "rate of SGD"}, type: "log", range: ends}, y: {title: {text: "loss"}, range: [0, .6]}};
  },
};

function start(box) {
  const scene = JSON.parse(box.querySelector("script").textContent), names = Object.keys(scene.sliders);
  const at = [...scene.start], plot = document.createElement("div"), controls = document.createElement("div");
  plot.className = "scene-plot";
  controls.className = "scene-controls";
  box.append(controls, plot);
  const draw = () => {
    const begin = performance.now(), color = getComputedStyle(box).color;
    const index = names.reduce((sum, name, i) => sum * scene.sliders[name].length + at[i], 0);
    const found = DRAW[box.dataset.scene](scene, scene.frames[index], at), narrow = box.clientWidth < 500;
    const axis = more => ({gridcolor: "rgba(128, 128, 128, .25)", zeroline: false, ...more});
    Plotly.react(plot, shown(found.traces), {
      title: {text: found.title || "", font: {size: narrow ? 11 : 14}}, font: {color, size: narrow ? 11 : 13},
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", height: narrow ? 380 : 440,
      margin: {l: 50, r: 10, t: found.title ? 34 : 10, b: 46}, xaxis: axis(found.x), yaxis: axis(found.y),
      legend: {orientation: "h", y: -.22}, dragmode: false,
    }, {responsive: true, displayModeBar: false});
    box.dataset.milliseconds = performance.now() - begin;
  };
  names.forEach((name, i) => {
    const values = scene.sliders[name], label = document.createElement("label"), value = document.createElement("output");
    const input = document.createElement("input");
    Object.assign(input, {type: "range", min: 0, max: values.length - 1, value: at[i]});
    value.textContent = values[at[i]];
    input.addEventListener("input", () => { at[i] = +input.value; value.textContent = values[at[i]]; draw(); });
    label.append(`${name} `, input, value);
    controls.append(label);
  });
  draw();
  new MutationObserver(draw).observe(document.documentElement, {attributes: true, attributeFilter: ["data-theme"]});
}

document.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".scene").forEach(start));
