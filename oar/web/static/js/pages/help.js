// The document says everything; its choices and the search are the only things that move.
import { setUp } from "../common/page.js";

setUp();
document.documentElement.dataset.ready = "yes";
