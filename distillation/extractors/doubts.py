"""What keeps a sentence from being a memory, judged by its English wording (pure).

Questions, guesses, plans, progress, requests; and words that try to instruct the reader or to plant a memory (D12).
"""

from __future__ import annotations

import re

from distillation.extractors import sentences


def any_of(*patterns: str) -> re.Pattern[str]:
    """One pattern for several wordings, whatever the case."""
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


CLAUSE = r"^|[^\w\s,'`)/-]\s*|\s-\s"
"""Where a clause begins: at the start, behind a mark that ends or opens one, behind a dash."""

# A message that does this is planted, not said: nothing of it is kept (D12).
PLANTED = any_of(
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

QUESTION = any_of(
    r"\?\W*$",
    r"^(?:so |and |but |ok,? |well,? )*(?:what|why|how|where|who|which|whose)\b",
    r"^(?:so |and |but |ok,? |well,? )*(?:when|can|could|would|should|shall|do|does|did|is|are|was|were|am|may|will) "
    r"(?:you|we|i|it|they|there|the|this|that|these|those|a|an|any|my|our)\b",
    r"^(?:tell|show|explain|give|list|describe|write) (?:me|us|to me)?\b",
)

UNSETTLED = any_of(
    r"\b(?:maybe|perhaps|might|could|would|possibly|probably|presumably|hopefully|likely|apparently|seems?|appears?|"
    r"supposedly|allegedly|tentatively)\b",
    r"\bmy (?:guess|hunch|feeling|suspicion)\b",
    r"\b(?:what if|suppose|imagine|pretend|hypothetical|for example|e\.g\.|for instance|let's say|in theory)\b",
    r"\b(?:i think|i guess|i believe|i assume|i suspect|i wonder|i feel|not sure|unsure|no idea|don't know|unclear)\b",
    r"^(?:and |but |so )?(?:if|unless|when|once|whether|in case|assuming)\b",
    r"\b(?:we|you|i) (?:should|may|can)\b(?!'t| (?:never|always|only|not)\b)",
    r"\b(?:option|alternative|approach|idea|proposal|suggestion|recommendation)s?\b",
    r"\b(?:todo|tbd|fixme|wip|in progress|next steps?|later on|for now|at the moment|right now|temporarily|so far)\b",
)

PASSING = any_of(
    r"^(?:let me|i'll|i will|now|next|first,|then|let us|we'll (?:see|start|begin)|going to|here(?:'s| is| are)|"
    r"looking|checking|running|reading|starting|working|waiting)\b",
    r"\b(?:i|we)(?:'m|'re| am| are) (?:going|now|about|just|still|not|in a|currently|[a-z]{2,}ing)\b",
    r"\b(?:all |the )?(?:\d+ )?(?:tests?|checks?|build|lint|suite|verification)(?: \w+)? (?:now )?"
    r"(?:pass(?:es|ed)?|succeed(?:s|ed)?|(?:is|are) (?:green|clean|passing))\b",
    r"\b(?:is|are|was|were) (?:still |now |again |just |also )*(?:broken|failing|crashing|down|slow|stuck|red|running|"
    r"open|missing|wrong|empty|gone|ready|done|fine|working|complete)\b",
    r"\bkeeps? (?:on )?[a-z]+ing\b",
    r"\b(?:again|on my machine|a moment ago|just now)[.!]?$",
    r"\b(?:thanks|thank you|sorry|great job|well done|good (?:morning|catch|point)|"
    r"you're (?:absolutely )?(?:right|correct))\b",
    r"\b(?:above|below)\b(?! \d)|\b(?:as follows|the following|see here|attached|to-?do list)\b",
    r"\bcan't (?:wait|agree|believe|imagine|thank|stop|help)\b",
    r":\s*$",
    r"^(?:yes|no|ok|okay|sure|fine|perfect|great|done|got it|understood|hm+|hi|hello|hey)\b.{0,15}$",
)

POINTING = any_of(
    r"^(?:and |but |so |also,? )?(?:it|it's|this|that|that's|these|those|they|they're|he|she|there|here)\b"
    r"(?! turn(?:s|ed) out)",
    r"\b(?:decided|agreed|chose|picked|discussed)(?: on)? (?:this|it|that)"
    r"(?: (?:in|on|at|last|yesterday|before|earlier|already|with)\b|[.!]?$)",
)
"""Leans on the sentence before: a word in it means nothing without that."""

ADDRESSED = any_of(
    r"\byou(?:'ll|'d)? (?:must|have to|need|should|can|will|cannot|can't)\b",
    r"\b(?:assistant|agent|ai|model|llm)s? (?:must|should|shall|will|has to|have to|needs? to|(?:is|are) required)\b",
    r"\b(?:i|we|there is a|there's a) (?:need|needs|want|wants)\b",
    r"\b(?:i|we|you) have to\b",
    r"\bi (?:can't|cannot)\b",
    r"\bwe (?:can't|cannot) (?:find|see|run|reproduce|tell|figure|get|open|access|remember|seem)\b",
    r"\b(?:do not|don't|never) (?:remember|store|save|record|keep|memori[sz]e|log|mention)\b",
    r"\b(?:this time|in this (?:task|case|session|pr|change|commit|doc)|this once|today only)\b",
)

REASON = any_of(r"\b(?:because|since|so that|to avoid|otherwise|given that)\b", r"[;\u2014]")
"""Begins the part that says why: a "would" in there makes no guess of the statement."""

CORRECTION = any_of(
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


def corrects(message: str) -> bool:
    """Whether a user's message takes back what the assistant said just before."""
    return CORRECTION.search(message.strip()) is not None


def doubtful(text: str) -> bool:
    """Whether a sentence is a question, a guess, progress, a request, or leans on the sentence before."""
    head = REASON.split(text, maxsplit=1)[0]
    if UNSETTLED.search(head) or ADDRESSED.search(head):
        return True
    return any(pattern.search(text) for pattern in (QUESTION, PASSING, POINTING))
