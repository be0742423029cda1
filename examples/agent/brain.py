"""Where the model goes: it reads the conversation and says what to do next.

This one follows a script, so that the example needs no key and tells the same story each time. A real one would send
the transcript to a model and return its tool calls. It may be slow, fail, and answer differently: it is a step, and
what it said once is what happened.
"""

from __future__ import annotations

from typing import Any

Plan = dict[str, Any]


def plan(transcript: list[dict[str, Any]]) -> Plan:
    """What to do next: `{"calls": [{"tool", "arguments"}]}`, `{"ask": text}` or `{"answer": text}`.

    Parameters:
        transcript: everything that was said and found so far, the oldest first.
    """
    found = {entry["tool"]: entry["result"] for entry in transcript if "tool" in entry}
    order = transcript[0]["order"]
    if "find_payments" not in found:
        return {"calls": [_call("find_order", order=order), _call("find_payments", order=order)]}
    payments = found["find_payments"]
    said = [entry["text"] for entry in transcript if entry.get("from") == "person"]
    if not said:
        listed = " and ".join(f"{one['id']} of {one['cents']} cents" for one in payments)
        return {"ask": f"I see {listed}. Which one shall we pay back?"}
    if "refund.pay" not in found:
        wanted = next((one for one in payments if one["id"] in said[-1]), payments[-1])
        return {"calls": [_call("refund.pay", order=order, payment=wanted["id"], cents=wanted["cents"])]}
    refund = found["refund.pay"]
    if "refused" in refund:
        return {"answer": f"I may not pay that back: {refund['refused']}."}
    if "write_mail" not in found:
        text = f"We have paid back {refund['paid_back']} cents for order {order}."
        return {"calls": [_call("write_mail", to=transcript[0]["from"], text=text)]}
    return {"answer": f"{refund['paid_back']} cents are on their way."}


def _call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": tool, "arguments": arguments}
