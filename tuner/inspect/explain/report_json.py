"""Why a configuration is as fast as it is, for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from msgspec import structs

from tuner.inspect.explain.code_facts import CodeFacts, Part
from tuner.inspect.explain.explanation import LaunchExplanation
from tuner.inspect.explain.report import ExplanationReport
from tuner.kernel.roofline import LATENCY_NS
from tuner.report.tables import configuration_record, picked


def explanation_as_json(report: ExplanationReport) -> dict[str, Any]:
    """Return everything as plain data; times in nanoseconds, sizes in bytes, shares between 0 and 1."""
    explanation = report.explanation
    roof, (least_bytes, most_bytes) = explanation.roof, explanation.wanted_bytes
    return {
        **explanation.problem.to_json(),
        "gpu": explanation.gpu.name,
        "cc": explanation.gpu.cc,
        **configuration_record(explanation.configuration),
        "source": report.source,
        "notes": [*report.notes, *([report.launch_note] if report.launch_note else [])],
        "roofline": {
            **picked(roof, "flops bytes intensity ridge"),
            "binding": explanation.binding,
            **picked(roof, "peak_flops peak_bytes_per_s speed_of_light_ns"),
            "measured_ceiling": asdict(report.ceiling) if report.ceiling else None,
        },
        "time_ns": report.time_ns,
        "mode": report.conditions.mode if report.conditions else None,
        "regime": report.conditions.regime if report.conditions else None,
        **structs.asdict(report.metrics),
        "wanted_bytes_in_flight": {
            "latency_ns": LATENCY_NS,
            "bytes": [least_bytes, most_bytes],
            "cub_rule_of_thumb": explanation.customary_bytes,
        },
        "launches": [_launch_as_json(launch) for launch in explanation.launches],
        "advice": [
            {
                "about": line.name,
                "verdict": line.verdict,
                "launch": line.launch or None,
                "rule_of_thumb": line.rule_of_thumb,
                "because": line.text,
            }
            for line in report.advice
        ],
    }


def _launch_as_json(launch: LaunchExplanation) -> dict[str, Any]:
    fit, plan = launch.occupancy, launch.launch
    return {
        "entry": launch.entry,
        "name": launch.name,
        **picked(plan, "grid block cluster carveout"),
        **vars(launch.resources),
        "barriers": launch.barriers,
        "occupancy": {
            **picked(fit, "active_blocks warps max_warps fraction limiter"),
            "limits": [asdict(limit) for limit in fit.limits],
        },
        "waves": {
            **picked(launch.waves, "blocks slots count last_idle idle sms_used at_once"),
            "persistent": launch.persistent,
        },
        "bytes_in_flight": asdict(launch.under_way) if launch.under_way else None,
        "code": {
            facts.language.lower(): _facts_as_json(facts) for facts in (launch.ptx, launch.sass) if facts
        },
        "notes": launch.notes,
    }


def _facts_as_json(facts: CodeFacts) -> dict[str, Any]:
    return {
        "whole": _part_as_json(facts.whole),
        "main_path": _part_as_json(facts.walk),
        "loops": [{"depth": loop.depth, **_part_as_json(loop.part)} for loop in facts.loops],
        "in_flight": asdict(facts.in_flight),
        "instructions_per_byte": facts.instructions_per_byte,
    }


def _part_as_json(part: Part) -> dict[str, Any]:
    return {
        "instructions": part.instructions,
        "accesses": [{"kind": a.kind, "bytes": a.width, "count": a.count} for a in part.accesses],
        "float": part.float,
        "matrix": dict(part.matrix),
        "global_bytes": part.global_bytes,
    }
