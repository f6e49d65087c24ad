// Squarified treemaps (Bruls, Huizing and van Wijk, 2000): areas by weight, sides near to equal.

// Weights must be sorted, largest first. Gives for each a rectangle in the box.
function squarify(weights, box) {
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const scale = total ? (box.w * box.h) / total : 0;
  const areas = weights.map((weight) => weight * scale);
  const placed = [];
  let { x, y, w, h: height } = box;
  let start = 0;
  while (start < areas.length) {
    const side = Math.min(w, height);
    let end = start + 1;
    let sum = areas[start];
    let worst = ratio(areas[start], areas[start], sum, side);
    while (end < areas.length) {
      const next = ratio(areas[start], areas[end], sum + areas[end], side);
      if (next > worst) break;
      worst = next;
      sum += areas[end];
      end += 1;
    }
    const depth = side ? sum / side : 0;
    let along = 0;
    for (let n = start; n < end; n += 1) {
      const length = depth ? areas[n] / depth : 0;
      placed.push(w >= height
        ? { x, y: y + along, w: depth, h: length }
        : { x: x + along, y, w: length, h: depth });
      along += length;
    }
    if (w >= height) {
      x += depth;
      w -= depth;
    } else {
      y += depth;
      height -= depth;
    }
    start = end;
  }
  return placed;
}

function ratio(largest, smallest, sum, side) {
  const square = side * side;
  return Math.max((square * largest) / (sum * sum), (sum * sum) / (square * smallest));
}
