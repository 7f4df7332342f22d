"""The protocols that programs speak: each reads a body into `Asked` and writes `Answered`s."""
