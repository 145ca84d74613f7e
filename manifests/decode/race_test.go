//go:build race

package decode

// maxCost is the most that reading a refused input may allocate. The race detector allocates as well.
const maxCost = 256 << 20
