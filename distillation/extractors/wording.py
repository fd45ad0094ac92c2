"""What kind of statement an English sentence makes, judged by its wording (pure).

Careful rather than complete: a sentence counts only if its wording shows that something was decided, preferred,
required, learned or established. Questions, plans, guesses and requests are none of these.
"""

from __future__ import annotations

from enum import StrEnum

from distillation.extractors import doubts


class Kind(StrEnum):
    """The kinds worth keeping, most telling first."""

    PREFERENCE = "preference"
    DECISION = "decision"
    CONSTRAINT = "constraint"
    OUTCOME = "outcome"
    FACT = "fact"


SUBJECT = r"(?:we|our team|the team|they|everyone|\w+ and i|i)"
NOT_ONE_THING = (
    r"(?!the\b|this\b|that\b|these\b|those\b|it\b|my\b|your\b|going\b|on\b|an?\b|another\b|other\b|what\b|up\b)"
)
LASTING_SCOPE = (
    r"(?:\binstead of\b|\brather than\b|, not\b|\bunder \d|\bover\b|\b(?:in|for|on) (?:all|every|each|any|our|new)\b|"
    r"\b(?:in|for|on) (?:this|the) (?:repo|repository|project|codebase|docs|ui|api|code)\b|"
    r"\b(?:in|for|on) (?:[\w-]+ ){0,2}(?:text|code|files|tests|docs|messages|names|commits?|comments|dependencies|"
    r"commands|branches|changes|prs|pull requests|answers|responses|summaries|errors|releases)\b)"
)

PREFERENCE = doubts.any_of(
    r"^(?:also,? |and )?(?:please )?(?:always|never)\b(?! (?:mind|heard|seen|knew|thought|had|been|was|worked))",
    r"^(?:please )?(?:prefer|favou?r|avoid)\b",
    rf"^please,? (?:use|prefer|stick (?:to|with)|avoid) {NOT_ONE_THING}",
    r"^(?:please,? )?(?:use|keep|name|format|put|write|(?:do not|don't) (?:use|write|ask|add|include|put)) "
    rf"{NOT_ONE_THING}.*{LASTING_SCOPE}",
    r"^no [\w-]+(?: [\w-]+){0,3} (?:in|for) (?:our|the|any|all|this (?:repo|project|codebase))\b",
    r"\b(?:i|we) (?:strongly |really |generally |usually )?(?:prefer|favou?r|avoid|dislike|hate|like to|insist)\b",
    r"^i like (?!this\b|that\b|it\b|the\b|how\b|what\b|where\b|your\b)",
    r"\b(?:i|we) (?:don't|do not) (?:like|use|allow|support|accept|merge|commit|deploy|ship|mock)\b",
    r"\b(?:i|we) (?:always|never) "
    r"(?!got|had|was|were|did|said|saw|heard|knew|found|thought|been|worked|asked|\w+ed\b)",
    r"\b(?:i|we)(?:'d| would) (?:rather|prefer|like (?:all|every|you to always))\b",
    r"\bmy preference\b",
    r"^(?:please )?make sure (?:to |you |that you )?(?:always|never)\b",
    r"^from now on,? (?:always|never|use|prefer|all|every|we)\b",
)

DECISION = doubts.any_of(
    rf"\b{SUBJECT}(?:'ve| have|'re| are| had)? (?:finally |also |now )?(?:decided|agreed|chose|chosen|settled|opted|"
    r"picked|went with|going with|switched|moved|migrated|standardi[sz]ed|dropped|ruled out|rejected|committed to)\b",
    r"\b(?:was|were|is|has been|got) (?:decided|agreed|chosen|ruled out|rejected|deprecated|superseded|replaced by)\b",
    r"^(?:the )?(?:final )?(?:decision|conclusion|agreed|decided|resolution)(?: is| was)?\s*[:\u2013\u2014-]",
    r"^(?:the |our |final )*decision (?:is|was)\b",
    rf"^(?:ok,? |okay,? |yes,? |then )*let's (?:use|keep|drop) {NOT_ONE_THING}",
    r"^(?:ok,? |okay,? |yes,? |then )*let's (?:go with|stick (?:with|to)|switch to|standardi[sz]e on)\b",
    r"\b(?:we|we'll|we will) (?:go|stick|stay) with\b",
    r"\bwe(?:'ll| will) (?:use|keep|drop|support|store|deploy|ship)\b",
)

CONSTRAINT = doubts.any_of(
    r"\b(?:must|must not|mustn't|may not|has to|shall not|can only|cannot|can't|(?:is|are) not allowed|not permitted|"
    r"forbidden|mandatory)\b",
    r"\b(?:requires?|(?:is|are) required|only (?:supports?|accepts?|allows?|works?|runs?)|does not support|"
    r"doesn't support)\b",
    r"\bneeds? (?:an? |the )?(?:approval|review|permission|sign-?off|to be)\b",
    r"\b(?:is|are) (?:limited|capped|restricted) (?:to|at)\b",
    r"\b(?:at most|no more than|no fewer than|at least|up to) \d",
    r"\bshould (?:never|always|only|not)\b",
)

FIXED = (
    r"(?:fixed|shipped|deployed|released|merged|implemented|migrated|reverted|rolled back|resolved|replaced|upgraded|"
    r"integrated)"
)
OUTCOME = doubts.any_of(
    r"\b(?:root cause|turned out|turns out|lesson learned|lesson|learned (?:that|the hard way))\b",
    r"\b(?:was|were|is|are) caused by\b",
    r"^(?:the )?(?:fix|cure|solution|workaround) (?:was|is) \w",
    r"\b(?:fail(?:s|ed)|broke|breaks|crash(?:es|ed)|hangs?|hung|deadlock(?:s|ed)?|leak(?:s|ed)?) "
    r"(?:\w+ ){0,6}?(?:because|since|when|due to|with|on|if)\b",
    r"^(?:the )?(?:\w+ ){0,4}(?:bug|problem|issue|failure|outage|error|regression|incident|culprit) "
    r"(?:was|is|came from|lay)\b",
    rf"^(?:i|we)(?:'ve| have)? (?:\w+ly )?(?:{FIXED}|disabled|enabled)\b",
    rf"^{FIXED}\b",
    rf"\b(?:was|were|has been|have been|is now|are now|got) {FIXED}\b",
)

THING = (
    r"(?:project|repo|repository|codebase|service|server|app|application|client|database|db|api|backend|frontend|"
    r"schema|deployments?|deploys?|releases?|production|prod|staging|tests?|suite|ci|pipeline|team|customers?|config|"
    r"configuration|branch|port|endpoint|queue|worker|cluster|module|package|library|cli|plugin|adapter|migrations?|"
    r"environment|dashboard|monitoring|backups?|logs?|secrets?|credentials|owner|maintainer|lead|machine|host|"
    r"container|image|version|limit|timeout|threshold|quota|default)"
)
SET_UP = (
    r"(?:written|named|called|located|hosted|owned|managed|maintained|built|deployed|stored|generated|served|configured|"
    r"pinned|protected|rotated|encrypted|versioned|cut|handled|released|implemented|defined)"
)
DOES = (
    r"(?:uses?|runs?|lives?|listens?|lies|stores?|keeps?|depends? on|relies on|deploys?|expects?|returns?|serves?|"
    r"reads?|loads?|starts?|happens?|talks? to|connects? to|belongs? to|contains?|supports?|handles?|targets?|takes?)"
)
STATES = rf"(?:{DOES}|(?:is|are) (?:{SET_UP}|the|an?|our|in|on|at|under|behind|responsible|available|always|`|\d+))"

NO_HABIT = (
    r"(?:need|want|should|could|can|may|might|must|see|saw|get|got|think|thought|know|had|will|would|are|were|was|did|do|"
    r"have to|just|still|now|then|also|lost|found|held|tried|made|went|ran|left|came|seem|hope|wait|go|look|start|"
    r"continue|missed|forgot|really|even|both|all)\b|[a-z]+ed\b"
)
"""After "we": what tells of a wish, a plan or an event, not of how things are done."""

USER_FACT = doubts.any_of(
    rf"^(?:the |our |my |all |every |each |this )?(?:[\w./`'-]+ ){{0,8}}{THING}(?:'s)? "
    rf"(?:[\w./`'-]+ ){{0,5}}?{STATES}\b",
    rf"^we (?:always |usually |only )?(?!{NO_HABIT})[a-z]+ \w",
    r"^we(?:'re| are) (?:an?|the|on|based|in)\b",
    r"^my (?!guess|question|point|concern|problem|goal|bad|mistake|plan)[\w-]+(?: [\w-]+)? (?:is|are) \w",
    r"^(?:our|the) (?:[\w-]+ ){0,3}(?:style|conventions?|rules?|policy|standards?|process|stack|workflow)"
    r"(?:\s*:|(?: is| are)\b)",
    r"^(?:the |our )?(?:[\w-]+ )?(?:owner|maintainer|lead|contact|reviewer)\b.{0,40}\b(?:is|are) \w",
    rf"^our\b.{{3,80}}?\b{STATES}\b",
    r"\b(?:my name is|i work (?:on|as|at|for|with|in)\b|i(?:'m| am) (?:the|an?|based|responsible|on the)\b)",
    r"^[A-Z][\w-]+(?: [A-Z][\w-]+| (?:from|in|on|of) [\w-]+(?: [\w-]+)?)? "
    r"(?:owns|maintains|leads|runs|manages|reviews|handles|approves|is responsible for|is (?:the|our|an?))\b",
    rf"^[`@][^`\s]+`? (?:[\w-]+ )?{STATES}\b",
    rf"^(?:[\w-]+ ){{1,4}}(?:is|are) {SET_UP}\b",
)
AGENT_FACT = doubts.any_of(
    rf"^(?:the |our )(?:[\w./`'-]+ ){{0,4}}{THING} (?:[\w./`'-]+ ){{0,2}}?(?:uses|runs|lives|listens|stores|depends on|"
    rf"relies on|expects|returns|reads|loads|(?:is|are) {SET_UP}) ",
    rf"^(?:the |our )?(?:[\w-]+ ){{1,4}}(?:is|are) {SET_UP} (?:in|at|on|by|under|from|to) ",
    r"^`[^`]+` (?:[\w-]+ )?(?:uses|runs|lives|listens|stores|depends on|relies on|expects|returns|reads|loads|requires|"
    rf"only|is (?:the|{SET_UP}))\b",
)


def kind(text: str, *, role: str, listed: bool) -> Kind | None:
    """The kind of a sentence that states something lasting; `None` for every other sentence."""
    if doubts.doubtful(text):
        return None
    spoken_by_user = role == "user"
    if spoken_by_user and PREFERENCE.search(text):
        return Kind.PREFERENCE
    if DECISION.search(text) and (spoken_by_user or not text.lower().startswith("let's")):
        return Kind.DECISION
    if OUTCOME.search(text):
        return Kind.OUTCOME
    if listed and not spoken_by_user:
        return None
    if CONSTRAINT.search(text):
        return Kind.CONSTRAINT
    return Kind.FACT if (USER_FACT if spoken_by_user else AGENT_FACT).search(text) else None
