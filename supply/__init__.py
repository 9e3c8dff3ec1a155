"""What the scheduler is made of: lock files, software bill of materials, licences, known vulnerabilities.

Development tools, not shipped: ``python -m supply.sbom``, ``python -m supply.vulnerabilities``.
"""
