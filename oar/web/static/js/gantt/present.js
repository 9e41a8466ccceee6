// What goes on, kept up to date by what has changed: answers of /v1/gantt/live are put together here.

/** Parts that are told whole if anything in them has changed. */
const WHOLE = ["suspended", "states", "reservations"];

export class Present {
  running = new Map();
  planned = new Map();
  parts = {};

  /** Take an answer; return the whole record that it makes. */
  take(told) {
    if (told.since === null) this.running.clear(), this.planned.clear();
    for (const id of told.gone) this.running.delete(id), this.planned.delete(id);
    for (const job of told.running) this.planned.delete(job.id), this.running.set(job.id, job);
    for (const job of told.planned) this.running.delete(job.id), this.planned.set(job.id, job);
    for (const name of WHOLE) this.parts[name] = told[name] ?? this.parts[name];
    return { running: ordered(this.running), planned: ordered(this.planned), ...this.parts };
  }
}

function ordered(jobs) {
  return [...jobs.values()].sort((a, b) => a.id - b.id);
}
