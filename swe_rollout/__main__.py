"""`python -m swe_rollout` is `swe-rollout`."""

from swe_rollout.cli.main import main

if __name__ == "__main__":
    main()
