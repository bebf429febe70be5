// What the theme leaves out for people who use a screen reader or a keyboard.
function completeParts() {
  // Each block of code has a navigation element with the button that copies it.
  document.querySelectorAll("nav.md-code__nav").forEach((nav, index) => {
    if (!nav.ariaLabel) nav.ariaLabel = `Code block ${index + 1}`;
  });
  // A wide table scrolls on a phone.
  document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])").forEach((box) => {
    box.tabIndex = 0;
  });
}
new MutationObserver(completeParts).observe(document.documentElement, { childList: true, subtree: true });
completeParts();
