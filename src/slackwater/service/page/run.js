/** The run as the frames tell it: a whole frame is all there is, others are what has changed. */

import { ROOM, Series, Tide } from "./series.js";
import { moment } from "./format.js";

/** One query: its newest frame and its points. */
export class Query {
  constructor(frame, series = new Series()) {
    this.name = frame.name;
    this.key = frame.name.toLowerCase();
    this.frame = frame;
    this.series = series;
    this.filled = false;
  }

  take(told) {
    const frame = withSeries(told, this.frame);
    if (ofSeries(frame) !== ofSeries(this.frame)) {
      this.series.clear();
      this.filled = false;
    }
    this.frame = frame;
    for (const point of frame.points) this.series.push(point);
  }

  /**
   * Takes a whole frame: it has only the newest points, fewer of each query where there are many. What lies between
   * them and those that are known has not come, so that these are forgotten, and asked for when they are looked at.
   */
  takeWhole(frame, room) {
    const times = frame.points.map((point) => moment(point.at));
    const last = this.series.last?.at ?? -Infinity;
    if (times.length && Math.min(...times) > last) {
      this.series.clear();
      this.filled = isComplete(frame, room);
    }
    this.take(frame);
  }
}

/** The state of a live run. */
export class Run {
  constructor() {
    this.frame = null;
    /** Which run it is; empty until a frame has said so. */
    this.id = "";
    this.queries = new Map();
    this.tide = new Tide();
    /** Grows when queries come or go. */
    this.set = 0;
  }

  /** Forgets all queries. */
  forget() {
    this.queries.clear();
    this.set += 1;
  }

  /** Takes a frame in; what it says has changed: names of queries, and contracts that were met or broken. */
  fold(frame) {
    const changed = new Set();
    const turned = [];
    // frames that are made before the run has begun do not know yet which one it is
    const another = this.id && frame.run && frame.run !== this.id;
    this.id = frame.run || this.id;
    this.frame = frame;
    // what another run has said of a query of the same name is not of this one
    if (another) this.forget();
    if (frame.whole && frame.number < this.tide.number) this.tide.restart();
    this.tide.pushFrame(frame);
    const there = new Set(frame.queries.map((query) => query.name));
    const gone = [...(frame.whole ? [...this.queries.keys()].filter((name) => !there.has(name)) : []), ...frame.dropped];
    for (const name of gone) if (this.queries.delete(name)) this.set += 1;
    for (const told of frame.queries) {
      const known = this.queries.get(told.name);
      if (known === undefined) {
        const query = new Query({ ...told, points: [] });
        query.take(told);
        // a whole frame has the newest points of every query; one that comes later has all of them in its frames
        query.filled = !frame.whole || isComplete(told, frame.room);
        this.queries.set(told.name, query);
        this.set += 1;
      } else {
        if (told.met !== null && known.frame.met !== null && told.met !== known.frame.met) turned.push(told);
        if (frame.whole) known.takeWhole(told, frame.room);
        else known.take(told);
      }
      changed.add(told.name);
    }
    return { changed, turned };
  }
}

/** Whether a whole frame has all points of a query that there are: it has `room` for so many of each. */
function isComplete({ points }, room = ROOM) {
  return points.length >= ROOM || (points.length > 0 && points.length < room);
}

/** Which series the points of a frame are of. */
export function ofSeries(frame) {
  return `${frame.column}\u0000${JSON.stringify(frame.keys)}`;
}

/** A frame of a query with the series of the one before it, while nothing has been answered since the run went on. */
export function withSeries(frame, before) {
  return frame.column === null && before ? { ...frame, column: before.column, keys: before.keys } : frame;
}
