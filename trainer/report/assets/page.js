(function () {
  "use strict";
  var d = document;
  function all(query, within) { return Array.prototype.slice.call((within || d).querySelectorAll(query)); }
  function make(name, parent, text) {
    var e = d.createElement(name);
    if (text) e.textContent = text;
    return parent.appendChild(e);
  }
  /* A variant in a key: a switch for all that is drawn of it. */
  all(".key li").forEach(function (li) {
    function flip() {
      var on = li.getAttribute("aria-checked") === "false";
      all("[data-v='" + li.dataset.v + "']").forEach(function (e) {
        if (e.tagName === "LI") e.setAttribute("aria-checked", on);
        else e.style.display = on ? "" : "none";
      });
    }
    li.tabIndex = 0;
    li.setAttribute("role", "switch");
    li.setAttribute("aria-checked", "true");
    li.onclick = flip;
    li.onkeydown = function (e) {
      if (e.key === " " || e.key === "Enter") { e.preventDefault(); flip(); }
    };
  });
  /* A figure over several axes: one at a time. */
  all("figure").forEach(function (figure) {
    var panels = all("svg[data-axis]", figure), names = [], p, buttons;
    panels.forEach(function (s) { if (names.indexOf(s.dataset.axis) < 0) names.push(s.dataset.axis); });
    if (names.length < 2) return;
    function show(name) {
      panels.forEach(function (s) { s.style.display = s.dataset.axis === name ? "" : "none"; });
      buttons.forEach(function (b) { b.setAttribute("aria-pressed", b.textContent === name); });
    }
    p = make("p", figure, "Against");
    p.className = "axes";
    figure.insertBefore(p, figure.querySelector(".panels"));
    buttons = names.map(function (name) {
      var b = make("button", p, name);
      b.type = "button";
      b.onclick = function () { show(name); };
      return b;
    });
    show(names[0]);
  });
  /* What is wider than the page says so. */
  function hint(e) {
    var wide = e.scrollWidth > e.clientWidth + 1, p = e.previousElementSibling;
    if (!p || p.className !== "hint") {
      if (!wide) return;
      p = d.createElement("p");
      p.className = "hint";
      p.textContent = "scroll for more \u2192";
      e.parentNode.insertBefore(p, e);
      e.tabIndex = 0;
    }
    p.hidden = !wide;
  }
  function hints() { all(".scroll,.panels").forEach(hint); }
  hints();
  addEventListener("resize", hints);
  /* Values under the pointer, read off the lines. */
  var tip = make("div", d.body);
  tip.className = "tip";
  tip.hidden = true;
  function points(line) {
    var text = all("path", line).map(function (e) { return e.getAttribute("d"); }).join(" ");
    return (text.match(/-?[\d.]+,-?[\d.]+/g) || []).map(function (t) { return t.split(",").map(Number); });
  }
  function height_at(line, x) {
    for (var i = 1; i < line.length; i++) {
      var a = line[i - 1], b = line[i];
      if (a[0] <= x && x <= b[0]) return b[0] > a[0] ? a[1] + (b[1] - a[1]) * (x - a[0]) / (b[0] - a[0]) : b[1];
    }
  }
  all("svg[data-box]").forEach(function (s) {
    var box = s.dataset.box.split(" ").map(Number), range = s.dataset.y.split(" ").map(Number), lines;
    function value(y) {
      var share = (box[3] - y) / (box[3] - box[1]);
      return s.dataset.log === undefined ? range[0] + share * (range[1] - range[0])
                                         : range[0] * Math.pow(range[1] / range[0], share);
    }
    s.onpointermove = function (e) {
      var r = s.getBoundingClientRect(), x = (e.clientX - r.left) * s.viewBox.baseVal.width / r.width;
      tip.hidden = x < box[0] || x > box[2];
      if (tip.hidden) return;
      lines = lines || all("g.line", s).map(function (g) { return {g: g, at: points(g)}; });
      tip.textContent = "";
      var place = (x - box[0]) / (box[2] - box[0]) * s.dataset.x;
      make("b", tip, s.dataset.label + " " + +place.toPrecision(4));
      lines.forEach(function (line) {
        var y = line.g.style.display === "none" ? undefined : height_at(line.at, x);
        var name = d.querySelector(".key li[data-v='" + line.g.dataset.v + "']");
        var before = name ? name.textContent + ": " : "";
        if (y !== undefined) make("div", tip, before + +value(y).toPrecision(4));
      });
      tip.style.left = Math.min(e.pageX + 14, d.documentElement.clientWidth - tip.offsetWidth - 4) + "px";
      tip.style.top = e.pageY + 14 + "px";
    };
    s.onpointerleave = function () { tip.hidden = true; };
  });
})();
