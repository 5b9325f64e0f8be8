/** Points that are kept: rings of numbers, so that a page that is open for days holds no more than at first. */

import { moment } from "./format.js";

const ROOM = 300;
const number = (value) => (value === null || value === undefined ? NaN : value);

/** The answers of one column and one group, oldest first. */
export class Series {
  constructor(room = ROOM) {
    this.room = room;
    this.clear();
  }

  clear() {
    this.points = [];
    this.changed = true;
  }

  get last() {
    return this.points.at(-1);
  }

  /** Adds a point; one of the same time replaces it, an older one is known already. */
  push(point) {
    const at = moment(point.at);
    const entry = {
      at,
      value: number(point.value),
      low: number(point.low),
      high: number(point.high),
      how: point.how,
      met: point.met,
      rate: point.rate,
    };
    const last = this.last;
    if (last && at < last.at) return;
    if (last && at === last.at) this.points.pop();
    this.points.push(entry);
    // in one go, now and then: shifting at every point would move all of them each time
    if (this.points.length > this.room * 1.25) this.points = this.points.slice(-this.room);
    this.changed = true;
  }

  /** Puts points before those that are there. */
  before(points) {
    const first = this.points[0]?.at ?? Infinity;
    const older = new Series(this.room);
    for (const point of points) if (moment(point.at) < first) older.push(point);
    this.points = [...older.points, ...this.points].slice(-this.room);
    this.changed = true;
  }

  /** The points to be shown. */
  window() {
    return this.points;
  }
}

/** All points of a recording, of which those up to a frame are shown. */
export class RecordedSeries extends Series {
  constructor() {
    super(Infinity);
    this.frames = [];
    this.end = 0;
  }

  add(point, frame) {
    const before = this.points.length;
    this.push(point);
    if (this.points.length > before) this.frames.push(frame);
  }

  /** Shows what had come with a frame and those before it. */
  upTo(frame) {
    let [low, high] = [0, this.frames.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.frames[middle] <= frame) low = middle + 1;
      else high = middle;
    }
    if (low !== this.end) [this.end, this.changed] = [low, true];
  }

  window() {
    return this.points.slice(Math.max(0, this.end - ROOM), this.end);
  }
}

/** The tide line: load, what is kept of it, capacity and level by time. */
export class Tide {
  constructor(room = 900) {
    this.room = room;
    this.rows = [];
    this.number = -1;
  }

  push(moment_) {
    if (moment_.number <= this.number) return;
    this.number = moment_.number;
    const { load, kept_load: kept, capacity, level } = moment_;
    this.rows.push({ at: moment(moment_.at), load, kept, capacity, level, rows: moment_.rows_per_second });
    if (this.rows.length > this.room * 1.25) this.rows = this.rows.slice(-this.room);
  }

  /** The moment of a frame. */
  pushFrame(frame) {
    const rows = frame.streams.reduce((sum, stream) => sum + stream.rows_per_second, 0);
    this.push({ ...frame, rows_per_second: rows });
  }
}
