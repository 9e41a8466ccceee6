// The state of a page stands in its address: every view is a link.

/** Return the parameters of the address. */
export function parameters() {
  return Object.fromEntries(new URLSearchParams(location.search));
}

/** Return all values of a parameter that may be given several times. */
export function values(name) {
  return new URLSearchParams(location.search).getAll(name);
}

/** Change parameters of the address; an empty value takes one away, a list gives it several times.  Returns all of them. */
export function change(changes) {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(changes)) {
    if (Array.isArray(value)) {
      url.searchParams.delete(name);
      for (const each of value) url.searchParams.append(name, each);
    } else if (value == null || value === "" || value === false) url.searchParams.delete(name);
    else url.searchParams.set(name, value);
  }
  history.replaceState(null, "", url);
  return parameters();
}
