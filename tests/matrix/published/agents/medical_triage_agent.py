"""pydantic-ai-examples: a triage agent that delegates to a specialist or a senior doctor."""

from breaks import Break, drop_tool, edit_instructions
from pydantic_ai_examples import medical_agent_delegation as medical

from offbook import call, fail, role, when

COMPLAINT = "Sudden severe chest pain"
REPORT = {
    "diagnosis": ["angina"],
    "differential": [],
    "recommended_tests": ["ECG"],
    "immediate_actions": [],
    "estimated_time_minutes": 20,
}
PATIENT = medical.PatientInfo(patient_id="P001", age=64, known_conditions=["hypertension"])
ASK_SPECIALIST = {"specialty": "cardiology", "question": "Chest pain, 64 years"}
ASK_SENIOR = {"reason_for_escalation": "unclear", "initial_complaint": COMPLAINT}


def handle(complaint):
    return medical.MedicalTriageSystem().handle_patient(complaint, PATIENT)


def test_a_specialist_reports_and_a_failing_senior_is_survived(offbook):
    answer = {"final_status": "resolved_by_specialist", "specialty": "cardiology"}
    run = offbook.drive(handle).run(
        when(
            COMPLAINT,
            [
                call("consult_specialist", ASK_SPECIALIST),
                call("consult_senior_doctor", ASK_SENIOR),
                call("final_result", {**answer, "final_report": REPORT}, unanswered=True),
            ],
        ),
        role(
            "cardiology",
            [call("final_result", REPORT, unanswered=True)],
            system="You are a cardiology specialist.",
        ),
        role("senior", [fail("no such model", status=404)], system="senior clinician"),
    )
    report = run.results("consult_specialist")[0].text
    assert '"diagnosis":["angina"]' in report
    plan = run.results("consult_senior_doctor")[0].text
    assert "Consultation failed due to API error: 404" in plan
    assert run.output["final_report"]["diagnosis"] == ["angina"]
    question = next(r for r in run.requests if "cardiology specialist." in r.system)
    assert question.messages[0].text == "Consultation: Chest pain, 64 years"
    assert "Known conditions: ['hypertension']" in run.requests[0].messages[0].text
    assert "ESCALATION RULES" in run.requests[0].system


BREAKS = {
    "another specialist is asked": Break(
        lambda patch: patch.setitem(medical.SPECIALIST_MAP, "cardiology", medical.gp_agent),
        "You are a general practitioner.",
    ),
    "the error of the senior doctor is not handled": Break(
        lambda patch: patch.setattr(medical, "ModelHTTPError", KeyError),
        'the agent stopped after step 2. call("consult_senior_doctor"',
    ),
    "the tool is dropped": drop_tool(medical.triage_agent, "consult_senior_doctor"),
    "the rules of escalation are removed": edit_instructions(
        medical.triage_agent, "ESCALATION RULES", "NOTES", "ESCALATION RULES"
    ),
}
