/** A recorded run: all its frames, of which one is shown. */

import { moment } from "./format.js";
import { ofSeries, Query, withSeries } from "./run.js";
import { RecordedSeries, Tide } from "./series.js";

/** What was told of one query: frames of it by place with their series, null from where it was dropped. */
class History {
  constructor(frame) {
    this.query = new Query(frame, new RecordedSeries());
    this.query.filled = true;
    this.places = [];
    this.told = [];
    this.series = new Map();
  }

  take(told, place) {
    this.places.push(place);
    if (told === null) {
      this.told.push(null);
      // another one of its name begins with nothing
      this.series = new Map();
      return;
    }
    const frame = withSeries(told, this.told.at(-1)?.frame);
    const key = ofSeries(frame);
    if (!this.series.has(key)) this.series.set(key, new RecordedSeries());
    const series = this.series.get(key);
    this.told.push({ frame, series });
    const points = frame.points.toSorted((a, b) => moment(a.at) - moment(b.at));
    for (const point of points) series.add(point, place);
  }

  /** The query as it was at a place; null where it was not there. */
  at(place) {
    const i = lastUpTo(this.places, place);
    const told = i < 0 ? null : this.told[i];
    if (told === null) return null;
    const { frame, series } = told;
    if (series !== this.query.series) series.changed = true;
    series.upTo(place);
    [this.query.frame, this.query.series] = [frame, series];
    return this.query;
  }
}

export class Recording {
  #histories = new Map();

  constructor() {
    this.frames = [];
    this.times = [];
    this.frame = null;
    this.queries = new Map();
    this.tide = new Tide(Infinity);
  }

  /** Takes the next frame in; shows nothing yet. */
  fold(frame) {
    const before = this.frames.at(-1);
    if (before && frame.number <= before.number) return;
    const place = this.frames.length;
    const { queries, ...rest } = frame;
    this.frames.push(rest);
    this.times.push(moment(frame.at));
    this.tide.pushFrame(frame);
    const there = new Set(queries.map((query) => query.name));
    const gone = [...(frame.whole ? [...this.#histories.keys()].filter((name) => !there.has(name)) : []), ...frame.dropped];
    for (const name of gone) this.#histories.get(name)?.take(null, place);
    for (const told of queries) {
      if (!this.#histories.has(told.name)) this.#histories.set(told.name, new History(told));
      this.#histories.get(told.name).take(told, place);
    }
  }

  /** Goes to a place: the frame and all queries as they were. */
  show(place) {
    this.frame = this.frames[place];
    this.queries = new Map();
    for (const [name, history] of this.#histories) {
      const query = history.at(place);
      if (query !== null) this.queries.set(name, query);
    }
  }

  /** The place of the last frame up to a time. */
  placeOf(at) {
    return Math.max(0, lastUpTo(this.times, at));
  }
}

/** Where in an ascending list the last number is that is not above another; −1 where all are. */
function lastUpTo(sorted, most) {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= most) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
