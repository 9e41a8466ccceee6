// The state of a page stands in its address: every view is a link.

/** Return the parameters of the address. */
export function parameters() {
  return Object.fromEntries(new URLSearchParams(location.search));
}

/** Change parameters of the address; an empty value takes one away.  Returns all of them. */
export function change(changes) {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(changes)) {
    if (value == null || value === "" || value === false) url.searchParams.delete(name);
    else url.searchParams.set(name, value);
  }
  history.replaceState(null, "", url);
  return parameters();
}
