module swe-rollout.dev/fleet

go 1.26.0

require (
	golang.org/x/crypto v0.47.0
	golang.org/x/net v0.49.0
)

require golang.org/x/sys v0.40.0 // indirect
