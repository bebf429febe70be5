"""A world for a search: one patient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_ai_examples import medical_agent_delegation as medical

from offbook import drive

if TYPE_CHECKING:
    from offbook.runs.rehearsal import Rehearsal


def world() -> Rehearsal:
    """Return a new agent."""
    patient = medical.PatientInfo(patient_id="P001", age=64, known_conditions=["hypertension"])
    system = medical.MedicalTriageSystem()

    async def handle(complaint: str) -> Any:
        return await system.handle_patient(complaint, patient)

    return drive(handle)
