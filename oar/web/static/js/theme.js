// Runs before anything is drawn, so that nobody who has chosen a theme sees the other one first.
"use strict";
{
  const theme = localStorage.getItem("oar.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
}
