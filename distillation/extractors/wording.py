"""What kind of statement an English sentence makes, judged by its wording (pure).

Careful rather than complete: a sentence counts only if its wording shows that something was decided, preferred,
required, learned or established. Questions, plans, guesses and requests are none of these.
"""

from __future__ import annotations

import re
from enum import StrEnum

from distillation.extractors import sentences


class Kind(StrEnum):
    """The kinds worth keeping, most telling first."""

    PREFERENCE = "preference"
    DECISION = "decision"
    CONSTRAINT = "constraint"
    OUTCOME = "outcome"
    FACT = "fact"


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


CLAUSE = r"^|[^\w\s,'`)/-]\s*|\s-\s"
"""Where a clause begins: at the start, behind a mark that ends or opens one, behind a dash."""

# A message that does this is planted, not said: nothing of it is kept (D12).
PLANTED = _any(
    r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,40}"
    r"\b(?:instructions?|prompts?|rules|guidelines|everything)\b",
    r"\b(?:system|developer) (?:prompt|message|instructions?)\b",
    r"\bnew instructions?\b",
    r"\byou are now\b",
    r"\bfrom now on,? you\b",
    r"\b(?:jailbreak|developer mode|do anything now)\b",
    r"\b(?:to|dear|attention|hey),? (?:the |any |all |every )?"
    r"(?:ai|llm|assistants?|agents?|models?|memory system)\b.{0,20}[:,]",
    rf"(?:{CLAUSE}|\b(?:please|must|should|shall|need to|now|and|then) )"
    r"(?:remember|memori[sz]e|save|store|add|write|record|persist|insert|put|create|keep)\b"
    r".{0,80}\b(?:memory|memories|long[- ]term|knowledge base)\b",
    rf"(?:{CLAUSE}|\b(?:please|must|should|always) )(?:remember|memori[sz]e|note|record)\b,?"
    r" ?(?:that\b|this\b|the following\b|forever\b|:)",
    r'"(?:memories|sources)"\s*:',
    r"\b(?:output|respond|reply|answer) (?:only )?with (?:the |this |exactly )",
    r"</?(?:system|transcript|instructions?|memory|memories)\b",
    rf"(?:{CLAUSE})(?:system|assistant|human)\]?\s*:",
)

QUESTION = _any(
    r"\?\W*$",
    r"^(?:so |and |but |ok,? |well,? )*(?:what|why|how|where|who|which|whose)\b",
    r"^(?:so |and |but |ok,? |well,? )*(?:when|can|could|would|should|shall|do|does|did|is|are|was|were|am|may|will) "
    r"(?:you|we|i|it|they|there|the|this|that|these|those|a|an|any|my|our)\b",
    r"^(?:tell|show|explain|give|list|describe|write) (?:me|us|to me)?\b",
)

UNSETTLED = _any(
    r"\b(?:maybe|perhaps|might|could|would|possibly|probably|presumably|hopefully|likely|apparently|seems?|appears?|"
    r"supposedly|allegedly|tentatively)\b",
    r"\b(?:what if|suppose|imagine|pretend|hypothetical|for example|e\.g\.|for instance|let's say|in theory)\b",
    r"\b(?:i think|i guess|i believe|i assume|i suspect|i wonder|i feel|not sure|unsure|no idea|don't know|unclear)\b",
    r"^(?:and |but |so )?(?:if|unless|when|once|whether|in case|assuming)\b",
    r"\b(?:we|you|i) (?:should|may|can)\b(?!'t| (?:never|always|only|not)\b)",
    r"\b(?:option|alternative|approach|idea|proposal|suggestion|recommendation)s?\b",
    r"\b(?:todo|tbd|fixme|wip|in progress|next steps?|later on|for now|at the moment|right now|temporarily|so far)\b",
)

PASSING = _any(
    r"^(?:let me|i'll|i will|now|next|first,|then|let us|we'll (?:see|start|begin)|going to|here(?:'s| is| are)|"
    r"looking|checking|running|reading|starting|working|waiting)\b",
    r"\b(?:i|we)(?:'m|'re| am| are) (?:going|now|about|just|still|not|in a|currently|[a-z]{2,}ing)\b",
    r"\b(?:all |the )?(?:\d+ )?(?:tests?|checks?|build|lint|suite|verification)(?: \w+)? (?:now )?"
    r"(?:pass(?:es|ed)?|succeed(?:s|ed)?|(?:is|are) (?:green|clean|passing))\b",
    r"\b(?:is|are|was|were) (?:still |now |again |just |also )*(?:broken|failing|crashing|down|slow|stuck|red|running|"
    r"open|missing|wrong|empty|gone|ready|done|fine|working|complete)\b",
    r"\b(?:again|on my machine|a moment ago|just now)[.!]?$",
    r"\b(?:thanks|thank you|sorry|great job|well done|good (?:morning|catch|point)|"
    r"you're (?:absolutely )?(?:right|correct))\b",
    r"\b(?:above|below)\b(?! \d)|\b(?:as follows|the following|see here|attached|to-?do list)\b",
    r"\bcan't (?:wait|agree|believe|imagine|thank|stop|help)\b",
    r":\s*$",
    r"^(?:yes|no|ok|okay|sure|fine|perfect|great|done|got it|understood|hm+|hi|hello|hey)\b.{0,15}$",
)

POINTING = _any(
    r"^(?:and |but |so |also,? )?(?:it|it's|this|that|that's|these|those|they|they're|he|she|there|here)\b"
    r"(?! turn(?:s|ed) out)",
    r"\b(?:decided|agreed|chose|picked|discussed)(?: on)? (?:this|it|that)"
    r"(?: (?:in|on|at|last|yesterday|before|earlier|already|with)\b|[.!]?$)",
)
"""Leans on the sentence before: a word in it means nothing without that."""

ADDRESSED = _any(
    r"\byou(?:'ll|'d)? (?:must|have to|need|should|can|will|cannot|can't)\b",
    r"\b(?:assistant|agent|ai|model|llm)s? (?:must|should|shall|will|has to|have to|needs? to|(?:is|are) required)\b",
    r"\b(?:i|we|there is a|there's a) (?:need|needs|want|wants)\b",
    r"\b(?:i|we|you) have to\b",
    r"\bi (?:can't|cannot)\b",
    r"\bwe (?:can't|cannot) (?:find|see|run|reproduce|tell|figure|get|open|access|remember|seem)\b",
    r"\b(?:do not|don't|never) (?:remember|store|save|record|keep|memori[sz]e|log|mention)\b",
    r"\b(?:this time|in this (?:task|case|session|pr|change|commit|doc)|this once|today only)\b",
)

REASON = _any(r"\b(?:because|since|so that|to avoid|otherwise|given that)\b", r"[;\u2014]")
"""Begins the part that says why: a "would" in there makes no guess of the statement."""

SUBJECT = r"(?:we|our team|the team|they|everyone|\w+ and i|i)"
NOT_ONE_THING = (
    r"(?!the\b|this\b|that\b|these\b|those\b|it\b|my\b|your\b|going\b|on\b|an?\b|another\b|other\b|what\b|up\b)"
)
LASTING_SCOPE = (
    r"(?:\binstead of\b|\brather than\b|, not\b|\bunder \d|\bover\b|\b(?:in|for|on) (?:all|every|each|any|our|new)\b|"
    r"\b(?:in|for|on) (?:this|the) (?:repo|repository|project|codebase|docs|ui|api|code)\b|"
    r"\b(?:in|for|on) (?:[\w-]+ ){0,2}(?:text|code|files|tests|docs|messages|names|commits?|comments|dependencies)\b)"
)

PREFERENCE = _any(
    r"^(?:also,? |and )?(?:please )?(?:always|never)\b(?! (?:mind|heard|seen|knew|thought|had|been|was|worked))",
    r"^(?:please )?(?:prefer|favou?r|avoid)\b",
    rf"^please,? (?:use|prefer|stick (?:to|with)|avoid) {NOT_ONE_THING}",
    r"^(?:please,? )?(?:use|keep|name|format|put|write|do not use|don't use|don't write) "
    rf"{NOT_ONE_THING}.*{LASTING_SCOPE}",
    r"^no [\w-]+(?: [\w-]+){0,3} (?:in|for) (?:our|the|any|all|this (?:repo|project|codebase))\b",
    r"\b(?:i|we) (?:strongly |really |generally |usually )?(?:prefer|favou?r|avoid|dislike|hate|like to|insist)\b",
    r"\b(?:i|we) (?:don't|do not) (?:like|use|allow|support|accept|merge|commit|deploy|ship|mock)\b",
    r"\b(?:i|we) (?:always|never) "
    r"(?!got|had|was|were|did|said|saw|heard|knew|found|thought|been|worked|asked|\w+ed\b)",
    r"\b(?:i|we)(?:'d| would) (?:rather|prefer|like (?:all|every|you to always))\b",
    r"\bmy preference\b",
    r"^(?:please )?make sure (?:to |you |that you )?(?:always|never)\b",
    r"^from now on,? (?:always|never|use|prefer|all|every|we)\b",
)

DECISION = _any(
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

CONSTRAINT = _any(
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
OUTCOME = _any(
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

USER_FACT = _any(
    rf"^(?:the |our |my |all |every |each |this )?(?:[\w./`'-]+ ){{0,8}}{THING}(?:'s)? "
    rf"(?:[\w./`'-]+ ){{0,5}}?{STATES}\b",
    r"^we (?:use|run|deploy|have|host|store|keep|release|ship|work|support|maintain|own|build|develop|call)\b",
    r"^(?:the |our )?(?:[\w-]+ )?(?:owner|maintainer|lead|contact|reviewer)\b.{0,40}\b(?:is|are) \w",
    rf"^our\b.{{3,80}}?\b{STATES}\b",
    r"\b(?:my name is|i work (?:on|as|at|for|with|in)\b|i(?:'m| am) (?:the|an?|based|responsible|on the)\b)",
    r"^[A-Z][\w-]+(?: [A-Z][\w-]+| (?:from|in|on|of) [\w-]+(?: [\w-]+)?)? "
    r"(?:owns|maintains|leads|runs|manages|reviews|handles|approves|is responsible for|is (?:the|our|an?))\b",
    rf"^[`@][^`\s]+`? (?:[\w-]+ )?{STATES}\b",
    rf"^(?:[\w-]+ ){{1,4}}(?:is|are) {SET_UP}\b",
)
AGENT_FACT = _any(
    rf"^(?:the |our )(?:[\w./`'-]+ ){{0,4}}{THING} (?:[\w./`'-]+ ){{0,2}}?(?:uses|runs|lives|listens|stores|depends on|"
    rf"relies on|expects|returns|reads|loads|(?:is|are) {SET_UP}) ",
    rf"^(?:the |our )(?:[\w-]+ ){{1,4}}(?:is|are) {SET_UP} (?:in|at|on|by|under|from|to) ",
    r"^`[^`]+` (?:[\w-]+ )?(?:uses|runs|lives|listens|stores|depends on|relies on|expects|returns|reads|loads|requires|"
    rf"only|is (?:the|{SET_UP}))\b",
)


CORRECTION = _any(
    r"^(?:no|nope|nah|wrong|incorrect|stop|wait)\b(?! (?:problem|worries|need))",
    r"^(?:actually|that's (?:not|wrong|incorrect)|that is (?:not|wrong)|it's (?:not|wrong|a? ?bad)|"
    r"not (?:quite|right|true))\b",
    r"^(?:please )?(?:revert|undo|roll back)\b",
)


def planted(message: str) -> bool:
    """Whether a message tries to instruct its reader or to plant a memory."""
    lines = [" ".join(line.split()) for line in message[: sentences.MAX_CHARS].splitlines()]
    # Once with its line ends as the ends of clauses, once with words that a line end stands between.
    return any(PLANTED.search(joint.join(lines)) for joint in (" | ", " "))


def kind(text: str, *, role: str, listed: bool) -> Kind | None:
    """The kind of a sentence that states something lasting; `None` for every other sentence."""
    head = REASON.split(text, maxsplit=1)[0]
    if UNSETTLED.search(head) or any(pattern.search(text) for pattern in (QUESTION, PASSING, POINTING)):
        return None
    spoken_by_user = role == "user"
    if ADDRESSED.search(head):
        return None
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


def corrects(message: str) -> bool:
    """Whether a user's message takes back what the assistant said just before."""
    return CORRECTION.search(message.strip()) is not None
