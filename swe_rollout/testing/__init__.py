"""Help for your own tests: contract suites, conformance checks and small tokenizers."""
