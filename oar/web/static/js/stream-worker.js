// Holds the one stream of this browser and tells all pages; each page polls for itself where there is none.
"use strict";

const ports = new Set();
const NAMES = ["state", "event", "reset", "jobs", "resources", "gantt", "queues", "accounting", "events", "reservations"];
let source = null;
let status = "connecting";

function tell(message) {
  for (const port of ports) port.postMessage(message);
}

function change(to) {
  status = to;
  tell({ status });
}

function open(address) {
  source = new EventSource(address);
  source.onopen = () => change("live");
  source.onerror = () => {
    change("lost");
    if (source.readyState !== EventSource.CLOSED) return; // the browser connects again by itself
    source = null;
    setTimeout(() => ports.size && !source && open(address), 3000 + 2000 * Math.random());
  };
  for (const name of NAMES) {
    source.addEventListener(name, (event) => tell({ name, data: JSON.parse(event.data) }));
  }
}

onconnect = ({ ports: [port] }) => {
  ports.add(port);
  port.onmessage = ({ data }) => {
    if (data.open && !source) open(data.open);
    if (data.close) {
      ports.delete(port);
      if (!ports.size && source) source.close(), (source = null), (status = "connecting");
    }
    port.postMessage({ status });
  };
};
