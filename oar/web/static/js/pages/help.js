// The page of the service says everything; its choices and the palette are the only things that move.
import { begin } from "../common/live.js";
import "../common/page.js";
import { setUpMenu } from "../common/menu.js";

setUpMenu();
begin();
document.documentElement.dataset.ready = "yes";
