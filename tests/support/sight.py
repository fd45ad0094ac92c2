"""What of a page is to be seen and used by somebody whose browser runs no scripts.

What is looked for is not a list of ours: every link, button and field that a page brings along has to be in sight, with
nothing over it, and to lead somewhere. What only a script could answer is named here, and has to be out of sight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Page

WIDTHS = (1280, 768)

# The palette over the same search that the box does, the choice of light or dark, the sheet's and the sidebar's own
# buttons, the tick for a whole page; and the name that a password's form tells the browser alone.
_OF_SCRIPTS = (
    "[x-data='searchCommand()'] *, [x-on\\:click^='switchTheme'], a[x-on\\:click^='filterOpen'], #action-toggle, "
    ".am-toggle *, input.hidden"
)
# In sight as soon as a row is ticked; and heads of columns, which a narrow list leaves out, with scripts as without.
_LATER = "#changelist-actions-wrapper *, #result_list th.hidden *"
_LOOK = """([ofScripts, later, within]) => {
  const seen = each => each.checkVisibility({opacityProperty: true, visibilityProperty: true})
    && each.getClientRects().length > 0 && each.getBoundingClientRect().width > 0;
  const called = each => each.outerHTML.replace(/\\s+/g, ' ').slice(0, 160);
  const all = which => document.querySelector(within).querySelectorAll(which);
  const folded = each => each.tagName !== 'SUMMARY' && each.closest('details:not([open])');
  const wrong = [];
  for (const each of all(ofScripts))
    if (each.matches('a, button, input, [x-on\\\\:click]') && seen(each)) wrong.push('for scripts: ' + called(each));
  for (const each of all('span[x-on\\\\:click], div[x-on\\\\:click], a:not([href])'))
    if (seen(each) && getComputedStyle(each).pointerEvents !== 'none' && !each.querySelector('a, button'))
      wrong.push('does nothing: ' + called(each));
  for (const each of all('a[href], button, summary, select, textarea, input:not([type=hidden])')) {
    if (each.matches(ofScripts) || each.matches(later) || folded(each)) continue;
    if (!seen(each)) { wrong.push('out of sight: ' + called(each)); continue; }
    each.scrollIntoView({block: 'center', inline: 'center'});
    const at = each.getClientRects()[0], edge = Math.min(5, at.width / 2);
    for (const x of [at.left + edge, at.left + at.width / 2, at.right - edge]) {
      const top = document.elementFromPoint(x, at.top + at.height / 2);
      if (top && (each.contains(top) || top.contains(each))) continue;
      wrong.push(top ? 'covered: ' + called(each) + ' by ' + called(top) : 'beside the page: ' + called(each));
      break;
    }
  }
  for (const each of all('canvas')) if (seen(each)) wrong.push('an empty chart');
  return wrong;
}"""


def wrong(page: Page, within: str = "body") -> list[str]:
    """What of a page, or of a part of it, is not to be seen or used: a line each.

    Looked at in both widths, first in the one that it has: a page takes its time to become another's width.
    """
    found = []
    size = page.viewport_size
    for width in sorted(WIDTHS, key=lambda each: size is None or each != size["width"]):
        page.set_viewport_size({"width": width, "height": 900})
        lines = page.evaluate(_LOOK, [_OF_SCRIPTS, _LATER, within])
        found += [f"{urlsplit(page.url).path} at {width}: {line}" for line in lines]
    return found
