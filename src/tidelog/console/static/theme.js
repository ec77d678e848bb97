// The theme: as the system has it, light, or dark; the choice stays in this browser.

const KEY = "tidelog-theme";
const ORDER = ["system", "light", "dark"];

export function setUpTheme() {
  const button = document.getElementById("theme");
  const apply = () => {
    const chosen = localStorage.getItem(KEY) ?? "system";
    document.documentElement.dataset.theme = chosen;
    button.textContent = `Theme: ${chosen}`;
  };
  button.addEventListener("click", () => {
    const now = ORDER.indexOf(localStorage.getItem(KEY) ?? "system");
    localStorage.setItem(KEY, ORDER[(now + 1) % ORDER.length]);
    apply();
  });
  apply();
}
