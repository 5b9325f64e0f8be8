/** Points that are kept: rings of numbers, so that a page that is open for days holds no more than at first. */

import { moment } from "./format.js";

/** Points of a query that are kept, and shown. */
export const ROOM = 300;
/** Moments of the tide line: as many as a run keeps, an hour of them. */
export const MOMENTS = 3_600;
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

  /** The last point that is shown. */
  get newest() {
    return this.last;
  }

  /** Adds a point at its time, where it replaces one that is there: answers of a batch come in any order. */
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
      slope: point.slope ?? 0,
      gap: point.gap ?? null,
    };
    let place = this.points.length;
    while (place && this.points[place - 1].at > at) place -= 1;
    const same = place > 0 && this.points[place - 1].at === at;
    this.points.splice(same ? place - 1 : place, same ? 1 : 0, entry);
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

  /** The points to be shown: as many each time, so that a chart moves on with every one that comes. */
  window() {
    return this.points.slice(-this.room);
  }
}

/** All points of a recording, of which those up to a frame are shown. */
export class RecordedSeries extends Series {
  constructor() {
    super(Infinity);
    this.frames = [];
    this.end = 0;
  }

  /** Adds a point of a frame; frames come in order, and so must their points, or else they could not be found by frame. */
  add(point, frame) {
    if (this.last && moment(point.at) < this.last.at) return;
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

  get newest() {
    return this.points[this.end - 1];
  }

  window() {
    return this.points.slice(Math.max(0, this.end - ROOM), this.end);
  }
}

/** The tide line: load, what is kept of it, capacity and level by time. */
export class Tide {
  constructor(room = MOMENTS) {
    this.room = room;
    this.rows = [];
    this.number = -1;
    /** How many runs have told of it. */
    this.runs = 1;
  }

  push(moment_) {
    if (moment_.number <= this.number) return;
    this.number = moment_.number;
    this.rows.push(rowOf(moment_));
    if (this.rows.length > this.room * 1.25) this.rows = this.rows.slice(-this.room);
  }

  /** Puts moments among those that are there, before the first of them and where some have not come. */
  fill(moments) {
    const known = new Map(moments.map((each) => [moment(each.at), rowOf(each)]));
    for (const row of this.rows) known.set(row.at, row);
    this.rows = [...known.values()].sort((a, b) => a.at - b.at).slice(-this.room);
    for (const { number } of moments) this.number = Math.max(this.number, number);
  }

  /** Another run tells now, whose frames are counted from the start. */
  restart() {
    this.number = -1;
    this.runs += 1;
  }

  /** The moment of a frame. */
  pushFrame(frame) {
    const rows = frame.streams.reduce((sum, stream) => sum + stream.rows_per_second, 0);
    this.push({ ...frame, rows_per_second: rows });
  }
}

function rowOf({ at, load, kept_load: kept, capacity, level, rows_per_second: rows }) {
  return { at: moment(at), load, kept, capacity, level, rows };
}
