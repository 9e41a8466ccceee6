// What the document tells of the site, and the addresses of everything.

const { dataset, lang } = document.documentElement;

export const site = {
  name: dataset.site,
  zone: dataset.zone,
  user: dataset.user,
  administers: "administers" in dataset,
  createsTokens: "createsTokens" in dataset,
  language: lang,
  root: new URL(dataset.root, location.href).href,
  static: new URL(dataset.static + "/", location.href).href,
};

/** Seconds between the clock of the service and that of this computer. */
const ahead = Number(dataset.now) - Date.now() / 1000;

/** Return the present in epoch seconds, by the clock of the service. */
export function now() {
  return Date.now() / 1000 + (Math.abs(ahead) > 30 ? ahead : 0);
}

/** Return the address of a page: `page("jobs", 42)`, `page("jobs", null, {user: "alice"})`. */
export function page(name, id, parameters) {
  const url = new URL(`ui/${name === "dashboard" ? "" : name}${id == null ? "" : `/${encodeURIComponent(id)}`}`, site.root);
  for (const [key, value] of Object.entries(parameters ?? {})) if (value) url.searchParams.set(key, value);
  return url.href;
}

const policy = globalThis.trustedTypes?.createPolicy("oar", {
  createScriptURL(address) {
    if (!address.startsWith(`${site.static}js/`)) throw new TypeError("a script of another place");
    return address;
  },
});

/** Return the address of a script of ours as browsers want it for workers. */
export function script(name) {
  const address = `${site.static}js/${name}`;
  return policy ? policy.createScriptURL(address) : address;
}
