// What cannot be shown: with the menu and the search of every page, and again when the database answers.
import { get } from "../common/api.js";
import { setUp } from "../common/page.js";

/** Milliseconds between two attempts. */
const PAUSE = 10_000;

setUp();
document.documentElement.dataset.ready = "yes";
if (document.querySelector("[data-status='503']")) setInterval(() => get("queues").then(() => location.reload(), () => {}), PAUSE);
