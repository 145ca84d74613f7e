//go:build !race

package decode

// maxCost is the most that reading a refused input may allocate.
const maxCost = 128 << 20
