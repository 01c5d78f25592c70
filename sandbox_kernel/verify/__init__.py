"""What can be said about code without running it: does it have the signature, does it keep the contract."""

from __future__ import annotations

from .expected import ExpectedSignature, extract_expected_signature
from .function import verify_function
from .results import SpecResult, Verdict, VerificationUnavailable
from .signature import verify_ast_signature
from .spec import VerificationSpec, check_spec

__all__ = [
    "ExpectedSignature",
    "SpecResult",
    "Verdict",
    "VerificationSpec",
    "VerificationUnavailable",
    "check_spec",
    "extract_expected_signature",
    "verify_ast_signature",
    "verify_function",
]
