"""Operations of policies, suppression lists, decisions and counters."""

from __future__ import annotations

from penstock.api.http.operation import Operation

_WRITE = (400, 413, 415, 422, 429, 503)


def _kept(
    plural: str, singular: str, answer: str, shape: str, summaries: tuple[str, str, str, str]
) -> tuple[Operation, ...]:
    """List, read, keep and forget things of one kind."""
    path, held = f"/v1/{plural}", f"Held{shape}"
    every, one, keep, forget = summaries
    return (
        Operation(
            method="get",
            path=path,
            name=plural,
            tag="Policies",
            summary=every,
            answers={200: (f"{answer}s", "PolicyList")},
        ),
        Operation(
            method="get",
            path=f"{path}/{{{singular}}}",
            name=singular,
            tag="Policies",
            summary=one,
            parameters=(singular,),
            answers={200: (answer, held)},
            failures=(404,),
        ),
        Operation(
            method="put",
            path=f"{path}/{{{singular}}}",
            name=f"put{shape}",
            tag="Policies",
            summary=keep,
            parameters=(singular,),
            body=shape,
            scope="admin",
            answers={200: ("Kept", held)},
            failures=_WRITE,
        ),
        Operation(
            method="delete",
            path=f"{path}/{{{singular}}}",
            name=f"drop{shape}",
            tag="Policies",
            summary=forget,
            parameters=(singular,),
            scope="admin",
            answers={200: ("Forgotten", "Named")},
            failures=(404,),
        ),
    )


POLICY_OPERATIONS: tuple[Operation, ...] = (
    *_kept(
        "policies",
        "policy",
        "The rule",
        "Policy",
        (
            "Every policy",
            "One policy, as it was written",
            "Keep a policy for what is decided from now on, in every process",
            "Forget a policy and its counters",
        ),
    ),
    *_kept(
        "suppressions",
        "suppression",
        "The list",
        "Suppression",
        (
            "Every suppression list, without its keys",
            "One suppression list with its keys",
            "Keep a list with exactly these keys: they get nothing",
            "Forget a suppression list",
        ),
    ),
    Operation(
        method="put",
        path="/v1/suppressions/{suppression}/keys/{key}",
        name="suppress",
        tag="Policies",
        summary="Add one key to a list",
        parameters=("suppression", "key"),
        scope="admin",
        answers={200: ("On the list", "Named")},
        failures=(404,),
    ),
    Operation(
        method="delete",
        path="/v1/suppressions/{suppression}/keys/{key}",
        name="unsuppress",
        tag="Policies",
        summary="Take one key off a list",
        parameters=("suppression", "key"),
        scope="admin",
        answers={200: ("Not on the list", "Named")},
        failures=(404,),
    ),
    Operation(
        method="post",
        path="/v1/decisions",
        name="explain",
        tag="Policies",
        summary="What would be decided now of one message, or an array of them; writes nothing",
        body="Question",
        answers={200: ("The decision, or an array of them", "Decision")},
        failures=(400, 413, 415, 422),
    ),
    Operation(
        method="get",
        path="/v1/counters/{key}",
        name="counters",
        tag="Policies",
        summary="What caps have counted for a key",
        parameters=("key",),
        answers={200: ("The counters", "Counters")},
        failures=(404,),
    ),
)
