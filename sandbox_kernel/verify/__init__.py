"""What can be said about code without running it: does it have the signature, does it keep the contract."""

from __future__ import annotations

from .expected import ExpectedSignature, extract_expected_signature
from .signature import verify_ast_signature

__all__ = ["ExpectedSignature", "extract_expected_signature", "verify_ast_signature"]
