"""The admission webhook: HTTP around `core/admission.py`."""
