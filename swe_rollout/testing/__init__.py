"""What users test with too: the small tokenizer that scripted policies speak."""
