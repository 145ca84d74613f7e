//go:build !race

package manifests

// maxCost is the most that reading a refused input may allocate.
const maxCost = 128 << 20
